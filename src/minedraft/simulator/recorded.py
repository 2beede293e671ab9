"""The acceptance of a run that took place, from the file of its trace.

Owns the errors; the file is `trace.reader`'s, what its steps say `theory.acceptance_of`'s.
"""

from __future__ import annotations

from pathlib import Path

from minedraft.errors import ConfigError
from minedraft.theory import Acceptance, acceptance_of
from minedraft.trace.reader import read_trace
from minedraft.validation import check_str

_ALLOWED = "a trace, as minedraft writes it, with steps whose drafts are all of one length"


def recorded_acceptance(where: str, path: object) -> Acceptance:
    """What `theory.acceptance_of` finds in the trace at `path`; `where` is the field that names it.

    Raises:
        ConfigError: the file cannot be read, is no trace, or no step of it says how many of
            its drafts were right.
    """
    check_str(where, path)
    name = str(path)
    try:
        header, steps = read_trace(Path(name))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"minedraft: {where} = {name!r} cannot be read: {error}; allowed: {_ALLOWED}"
        ) from error
    found = acceptance_of(header.mode, steps)
    if found is None:
        raise ConfigError.bad_value(where, name, _ALLOWED)
    return found
