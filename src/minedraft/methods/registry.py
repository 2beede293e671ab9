"""Which methods there are to draft with, by name, and what each takes.

Owns names and options; it makes drafters only when asked to. A method of somebody else is
named by where its class is: ``package.module:Class``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from minedraft.errors import ConfigError
from minedraft.methods.base import Drafter, Needs, Surroundings
from minedraft.methods.ngram import NgramDrafter, NgramOptions
from minedraft.methods.suffix import SuffixDrafter, SuffixOptions
from minedraft.validation import as_mapping, refuse_unknown

MODEL = "model"
"""A draft model, run by vLLM."""
EAGLE_HEADS = ("eagle", "eagle3")
"""Heads that continue from their own states."""
MEDUSA = "medusa"
"""Heads of which each says one token, all from the same state."""
HEADS = (*EAGLE_HEADS, MEDUSA)
"""Heads on the target's hidden states, run by vLLM."""
WITH_MODEL = (MODEL, *HEADS)
"""Methods for which `draft_model` names a model, which vLLM runs."""
_ELSEWHERE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_METHODS = ("needs", "draft", "roll_back", "release")


@dataclass(frozen=True, slots=True)
class _Own:
    """A method of minedraft's that runs no model."""

    make: Callable[[Surroundings, Any], Drafter]
    options: type
    needs_package: str | None = None


_OWN: dict[str, _Own] = {
    "ngram": _Own(NgramDrafter, NgramOptions),
    "suffix": _Own(SuffixDrafter, SuffixOptions, "arctic_inference"),
}


def check_method(method: object, options: object) -> None:
    """Raise ConfigError for a name that is no method, and for options that it does not take."""
    table = as_mapping("draft_options", options)
    try:
        json.dumps(table, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError.bad_value(
            "draft_options", table, f"what JSON has a form for ({error})"
        ) from error
    name = method if isinstance(method, str) else ""
    if name in WITH_MODEL:
        refuse_unknown(f"draft_options of draft_method {name!r}", table, ())
    elif name in _OWN:
        _read_options(name, table)
    elif _ELSEWHERE.fullmatch(name) is None:
        names = ", ".join(map(repr, (*WITH_MODEL, *_OWN)))
        raise ConfigError.bad_value(
            "draft_method", method, f"{names}, or the place of a class as in 'package.module:Class'"
        )


def check_installed(method: str) -> None:
    """Raise ConfigError if the package that a method needs cannot be found from here.

    Nothing is imported but the packages that its module lies in.
    """
    own = _OWN.get(method)
    place = method.partition(":")[0] if own is None else own.needs_package
    if place is None:
        return
    try:
        is_there = importlib.util.find_spec(place) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        hint = "" if own is None else f"; install {place.replace('_', '-')}"
        raise ConfigError.bad_value(
            "draft_method", method, f"one whose module {place!r} can be imported{hint}"
        )


def make_drafter(method: str, options: Mapping[str, object], surroundings: Surroundings) -> Drafter:
    """The drafter of a method that runs no model.

    Raises:
        ConfigError: the class is not there, does not take the options, is no drafter, or needs
            what it cannot be given.
    """
    own = _OWN.get(method)
    drafter = (
        _elsewhere(method, options, surroundings)
        if own is None
        else own.make(surroundings, _read_options(method, options))
    )
    if (needs := drafter.needs()) is not Needs.TOKENS:
        raise ConfigError.bad_value(f"{method}.needs()", needs, str(Needs.TOKENS))
    return drafter


def _read_options(method: str, table: Mapping[str, object]) -> Any:
    kind = _OWN[method].options
    refuse_unknown(
        f"draft_options of draft_method {method!r}", table, (each.name for each in fields(kind))
    )
    return kind(**table)


def _elsewhere(method: str, options: Mapping[str, object], surroundings: Surroundings) -> Drafter:
    place, _, name = method.partition(":")
    try:
        kind = getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError.bad_value(
            "draft_method", method, f"a class that the drafter's process can import ({error})"
        ) from error
    try:
        inspect.signature(kind).bind(surroundings, **options)
    except TypeError as error:
        raise ConfigError.bad_value(
            "draft_options", dict(options), f"what {method} takes ({error})"
        ) from error
    try:
        drafter: Drafter = kind(surroundings, **options)
    # It is somebody else's code: there is no common base of what it may raise.
    except Exception as error:
        raise ConfigError(
            f"minedraft: {method} could not be made: {type(error).__name__}: {error}"
        ) from error
    lacking = [each for each in _METHODS if not callable(getattr(drafter, each, None))]
    if lacking:
        raise ConfigError(f"minedraft: {method} has no method {lacking[0]}; see Drafter")
    return drafter
