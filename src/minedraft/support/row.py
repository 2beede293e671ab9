"""One row of the table of what is supported; not the table itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What happens to a request, an engine or a model of that kind."""

    WORKS = "works"
    WITHOUT_DRAFTS = "works without drafts"
    REFUSED = "refused"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Row:
    """One feature; `test` shows the verdict and is None only for what is untested."""

    area: str
    feature: str
    verdict: Verdict
    note: str = ""
    test: str | None = None
