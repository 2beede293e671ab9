"""The rows of a plan: every mode at its own best k, and plain decoding on all devices.

Owns what is tried and the estimate of TTFT; formulas are `theory`'s, which row is best `plan`'s.
"""

from __future__ import annotations

from minedraft.errors import ConfigError
from minedraft.planner.question import Question
from minedraft.planner.row import Row
from minedraft.theory import CLOSED_FORMS, Load, Steady

PLAIN = "none"
"""The mode without a drafter."""


def mode_row(question: Question, mode: str, in_flight: int) -> Row:
    """A mode with so many in flight at its best k: the fastest that keeps the SLO, if one does.

    Raises:
        ConfigError: no k has a closed form.
    """
    tried: list[Row] = []
    refused: ConfigError | None = None
    for k in _draft_lengths(question, mode):
        try:
            tried.append(_row(question, mode, k, in_flight))
        except ConfigError as error:
            refused = error
    if not tried:
        assert refused is not None
        raise refused
    return max(tried, key=lambda row: row.rank(question.goal))


def replicas_row(question: Question) -> Row:
    """Plain decoding on the target's devices and the drafter's too, by as many engines as fit.

    The requests are spread over them; a part of an engine counts as a part.
    """
    load = question.load(question.in_flight)
    each = max(1.0, question.in_flight * question.num_target_devices / question.num_devices)
    step_ms = load.step_ms(each, 0.0, each)
    steady = Steady(
        round_ms=step_ms, tokens_per_round=1.0, in_flight=question.in_flight, pass_ms=step_ms
    )
    engines = question.num_devices / question.num_target_devices
    return Row(
        mode=PLAIN,
        k=0,
        placement=f"{engines:.4g} targets",
        num_devices=question.num_devices,
        steady=steady,
        ttft_ms=_ttft_ms(question, steady, each, 0),
        slo=question.slo,
    )


def are_replicas_whole(question: Question) -> bool:
    """Whether target and drafter have the devices of a whole number of targets."""
    return question.num_devices % question.num_target_devices == 0


def _draft_lengths(question: Question, mode: str) -> range:
    return range(1) if mode == PLAIN else range(1, question.max_k + 1)


def _row(question: Question, mode: str, k: int, in_flight: int) -> Row:
    load: Load = question.load(in_flight)
    steady = CLOSED_FORMS[mode].steady(load, k)
    has_drafter = k > 0
    return Row(
        mode=mode,
        k=k,
        placement="target + drafter" if has_drafter else "target",
        num_devices=question.num_devices if has_drafter else question.num_target_devices,
        steady=steady,
        ttft_ms=_ttft_ms(question, steady, steady.pass_requests or in_flight, k),
        slo=question.slo,
    )


def _ttft_ms(question: Question, steady: Steady, num_requests: float, k: int) -> float:
    """The pass under way, and one with the whole prompt beside its own share of the others."""
    num_tokens = num_requests * (k + 1)
    with_prompt = question.times.verify_ms(num_requests, num_tokens + question.prompt_tokens)
    prompt_ms = with_prompt - question.times.verify_ms(num_requests, num_tokens)
    return 2 * steady.pass_ms + prompt_ms
