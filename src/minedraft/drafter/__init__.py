"""The drafter: its book, its loop, its process, and the scheduler's client to it."""

from __future__ import annotations

from minedraft.drafter.book import DraftBook
from minedraft.drafter.client import DrafterClient
from minedraft.drafter.device import DeviceInfo, DraftDevice, Guess, Row
from minedraft.drafter.emulated import EmulatedDraftDevice
from minedraft.drafter.loop import DrafterLoop
from minedraft.drafter.process import (
    Connection,
    DrafterLauncher,
    StartingDrafter,
    die_with_parent,
    drafter_command,
)
from minedraft.drafter.request import DraftedRequest
from minedraft.drafter.revival import Revival
from minedraft.drafter.source import (
    PLAIN_TERMS,
    DraftCounters,
    DraftSource,
    HeldDraft,
    NoDrafter,
    PassTimes,
    RequestTerms,
)
from minedraft.drafter.tokens_only import TokensOnlyDevice
from minedraft.drafter.virtual import VirtualDrafterLoop, VirtualLine
from minedraft.drafter.wait_free_client import WaitFreeClient

__all__ = [
    "PLAIN_TERMS",
    "Connection",
    "DeviceInfo",
    "DraftBook",
    "DraftCounters",
    "DraftDevice",
    "DraftSource",
    "DraftedRequest",
    "DrafterClient",
    "DrafterLauncher",
    "DrafterLoop",
    "EmulatedDraftDevice",
    "Guess",
    "HeldDraft",
    "NoDrafter",
    "PassTimes",
    "RequestTerms",
    "Revival",
    "Row",
    "StartingDrafter",
    "TokensOnlyDevice",
    "VirtualDrafterLoop",
    "VirtualLine",
    "WaitFreeClient",
    "die_with_parent",
    "drafter_command",
]
