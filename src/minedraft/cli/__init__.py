"""The ``minedraft`` command: its subcommands and their exit codes."""

from __future__ import annotations

from minedraft.cli.main import main

__all__ = ["main"]
