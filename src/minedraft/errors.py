"""The exceptions that minedraft raises on purpose; it holds no logic.

::

    MineDraftError
    ├── ConfigError (also a ValueError)   bad option, refused combination, unfit model
    ├── ProtocolError                     a message that cannot be read or is of another version
    ├── DrafterError                      the drafter did not start, answer or stay alive
    └── BenchError                        a benchmark's run that failed
"""

from __future__ import annotations


class MineDraftError(Exception):
    """Base of every error that minedraft raises on purpose."""


class ConfigError(MineDraftError, ValueError):
    """An option, a model or a combination of them that cannot work."""

    @classmethod
    def bad_value(cls, field: str, value: object, allowed: str) -> ConfigError:
        """The error for one field: names it, the value, and what is allowed."""
        return cls(f"minedraft: {field} = {value!r} is not allowed; allowed: {allowed}")


class ProtocolError(MineDraftError):
    """A message between scheduler and drafter that cannot be understood."""


class DrafterError(MineDraftError):
    """The drafter process did not start, does not answer, or died."""


class BenchError(MineDraftError):
    """One run of a benchmark failed; the others can go on."""
