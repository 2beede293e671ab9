"""How many draft tokens a target accepts, position by position.

Owns the arithmetic of chains of draft tokens; it knows no time.
Implements: E[tokens] = 1 + sum_j prod_{i<=j} a_i, with the bonus token; for equal a_i the
(1 - a^{k+1}) / (1 - a) of speculative decoding (arXiv:2211.17192).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minedraft.errors import ConfigError
from minedraft.validation import check_int, check_number


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Entry i is the probability that the draft token at position i + 1 is right if all before
    it were; the last entry holds for all that follow."""

    conditional: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.conditional:
            raise ConfigError.bad_value("acceptance", self.conditional, "at least one number")
        for at, value in enumerate(self.conditional):
            check_number(f"acceptance[{at}]", value, 0.0, 1.0)

    @classmethod
    def from_counts(cls, proposed: Sequence[int], accepted: Sequence[int]) -> Acceptance:
        """From draft tokens proposed and accepted at each position, as vLLM counts them.

        A token counts as tried where the one before it was accepted; a position at which
        none was tried ends the list.

        Raises:
            ConfigError: the lists differ in length, a count is negative, or more were
                accepted than proposed, or than were accepted one position earlier.
        """
        if len(proposed) != len(accepted):
            raise ConfigError.bad_value("accepted", accepted, f"{len(proposed)} counts")
        rates = []
        before: int | None = None
        for at, (tried, right) in enumerate(zip(proposed, accepted, strict=True)):
            check_int(f"proposed[{at}]", tried, 0)
            check_int(f"accepted[{at}]", right, 0, tried if before is None else min(before, tried))
            chances = tried if before is None else min(before, tried)
            if not chances:
                break
            rates.append(right / chances)
            before = right
        if not rates:
            raise ConfigError.bad_value("proposed", proposed, "at least one draft token")
        return cls(tuple(rates))

    def at(self, position: int) -> float:
        """That of the draft token at `position`, counted from 1."""
        check_int("position", position, 1)
        return self.conditional[min(position, len(self.conditional)) - 1]

    def survival(self, num_tokens: int) -> float:
        """Probability that the first `num_tokens` draft tokens are all right."""
        check_int("num_tokens", num_tokens, 0)
        product = 1.0
        for position in range(1, num_tokens + 1):
            product *= self.at(position)
        return product

    def expected_accepted(self, k: int) -> float:
        """Mean number of accepted tokens of k drafts."""
        check_int("k", k, 0)
        total, product = 0.0, 1.0
        for position in range(1, k + 1):
            product *= self.at(position)
            total += product
        return total

    def expected_tokens(self, k: int) -> float:
        """Mean number of tokens of a step with k drafts: the accepted ones and one more, which
        is the correction after a rejection and the bonus token otherwise."""
        return 1.0 + self.expected_accepted(k)

    def success_rate(self, k: int) -> float:
        """Mean share of k >= 1 draft tokens that are accepted (the paper's VSR)."""
        check_int("k", k, 1)
        return self.expected_accepted(k) / k
