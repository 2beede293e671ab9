"""Boils the times of requests, and the trace of their steps, down to the figures of one run.

Owns how a figure is computed; docs/benchmarks.md defines the terms. It measures nothing,
and what a trace's summary already says it takes from there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

import msgspec

from minedraft.errors import ConfigError
from minedraft.trace import StepRecord, Summary
from minedraft.trace.intervals import Interval, covered_fraction, length, union
from minedraft.validation import as_mapping, check_number, refuse_unknown

MS_PER_S = 1e3
NS_PER_S = 1e9
CUT_SHORT = ("abort", "error")
"""Finish reasons of requests that got no complete answer."""


class RequestTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one request. Times are seconds of one clock, the same for all requests."""

    id: str
    arrival_s: float
    """When it should have been sent: a late sender does not shorten its latency."""
    first_token_s: float | None = None
    finish_s: float | None = None
    """None for a request that was given up."""
    token_s: list[tuple[float, int]] = []
    """One entry per delivery, in order: when, and how many tokens it brought."""
    num_prompt_tokens: int
    num_output_tokens: int
    finish_reason: str | None = None
    """vLLM's: stop, length, abort, error, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a good answer keeps to, in ms: its first token, and the mean time of the others."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def __post_init__(self) -> None:
        check_number("slo.ttft_ms", self.ttft_ms, 0.0, optional=True, low_open=True)
        check_number("slo.tpot_ms", self.tpot_ms, 0.0, optional=True, low_open=True)
        if self.ttft_ms is None and self.tpot_ms is None:
            raise ConfigError("minedraft: slo is empty; give ttft_ms, tpot_ms or both")

    @classmethod
    def from_mapping(cls, table: object, where: str = "slo") -> Slo:
        """Build from a mapping; ConfigError names the field, its value and what is allowed."""
        options = as_mapping(where, table)
        refuse_unknown(where, options, (field.name for field in fields(cls)))
        return cls(**options)  # type: ignore[arg-type]

    def to_mapping(self) -> dict[str, object]:
        """The plain mapping that `from_mapping` takes, without the bound that is not set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Median, 90th and 99th percentile of `num_values` values, interpolated between neighbours."""

    median: float
    p90: float
    p99: float
    num_values: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run; None where there is nothing to compute one from."""

    num_requests: int
    num_completed: int
    """Requests with a complete answer: neither given up, nor aborted, nor failed."""
    num_output_tokens: int
    """Of all requests."""
    num_devices: int
    makespan_s: float | None
    """From the first arrival to the last token or end of any request."""

    output_tokens_per_s: float | None
    """With prefill: output tokens over the makespan."""
    output_tokens_per_s_per_device: float | None
    decode_tokens_per_s: float | None
    """Without prefill: over the steps without prompt tokens, tokens by time. From the trace."""
    decode_tokens_per_s_per_device: float | None
    requests_per_s: float | None
    """Completed requests over the makespan."""

    ttft_ms: Quantiles | None
    """Arrival to first token."""
    tpot_ms: Quantiles | None
    """First token to end, over the tokens after the first; one value per request."""
    inter_token_ms: Quantiles | None
    """Between deliveries that follow one another; one value per gap, of all requests."""
    end_to_end_ms: Quantiles | None
    """Arrival to end."""
    makespan_per_request_ms: float | None
    """The paper's E2EL: makespan over completed requests."""
    goodput_requests_per_s: float | None
    """Completed requests that keep to the SLO, over the makespan."""
    slo_share: float | None
    """Share of all requests that completed and kept to the SLO."""

    verification_success_rate: float | None
    """Accepted over verified draft tokens."""
    tokens_per_step: float | None
    tokens_per_request_step: float | None
    draft_ms: float | None
    """Mean t, the paper's drafting time."""
    verify_ms: float | None
    """Mean V, the paper's verification time."""
    hidden_state_bytes: float | None
    """Mean of a pass that left hidden states for the drafter, as a head has it do."""
    hidden_state_share: float | None
    """Share of the same passes' time that this took."""
    overlap_fraction: float | None
    """Share of the draft time during which the target was in a pass of any kind."""
    parallelised_share: float | None
    """Share of the draft time during which the target verified drafts."""
    drafter_bubble_share: float | None
    """Share of the time between the drafter's first and last work in which it had none."""
    verifier_bubble_share: float | None
    """The same for the target."""


def figures(
    requests: Sequence[RequestTimes],
    summary: Summary | None = None,
    steps: Sequence[StepRecord] | None = None,
    slo: Slo | None = None,
    devices: Mapping[str, int] | None = None,
) -> Figures:
    """Compute the figures of one run.

    `summary` and `steps` are of one trace; None if there is none. `devices` maps roles (such as
    target and draft) to their number of devices. Whatever is empty or missing makes its figures
    None; nothing is raised.
    """
    known_steps = [] if steps is None else list(steps)
    num_devices = sum((devices or {}).values())
    completed = [each for each in requests if _is_completed(each)]
    makespan_s = _makespan_s(requests)
    output_tokens = sum(each.num_output_tokens for each in requests)
    output_rate = _ratio(output_tokens, makespan_s)
    decode_rate = _decode_tokens_per_s(known_steps)
    good = None if slo is None else sum(_keeps(each, slo) for each in completed)
    drafts = [each for each in map(_draft, known_steps) if each is not None]
    return Figures(
        num_requests=len(requests),
        num_completed=len(completed),
        num_output_tokens=output_tokens,
        num_devices=num_devices,
        makespan_s=makespan_s,
        output_tokens_per_s=output_rate,
        output_tokens_per_s_per_device=_ratio(output_rate, num_devices),
        decode_tokens_per_s=decode_rate,
        decode_tokens_per_s_per_device=_ratio(decode_rate, num_devices),
        requests_per_s=_ratio(len(completed), makespan_s),
        ttft_ms=_quantiles(map(_ttft_ms, completed)),
        tpot_ms=_quantiles(map(_tpot_ms, completed)),
        inter_token_ms=_quantiles(itertools.chain.from_iterable(map(_gaps_ms, completed))),
        end_to_end_ms=_quantiles(map(_end_to_end_ms, completed)),
        makespan_per_request_ms=_ratio(_scaled(makespan_s, MS_PER_S), len(completed)),
        goodput_requests_per_s=_ratio(good, makespan_s),
        slo_share=_ratio(good, len(requests)),
        verification_success_rate=None if summary is None else summary.acceptance_rate,
        tokens_per_step=None if summary is None else summary.tokens_per_step,
        tokens_per_request_step=None if summary is None else summary.tokens_per_request_step,
        draft_ms=None if summary is None else summary.draft_ms,
        verify_ms=None if summary is None else summary.verify_ms,
        hidden_state_bytes=None if summary is None else summary.hidden_state_bytes,
        hidden_state_share=None if summary is None else summary.hidden_state_share,
        overlap_fraction=None if summary is None else summary.overlap_fraction,
        parallelised_share=covered_fraction(
            drafts, [_pass(step) for step in known_steps if any(step.proposed_per_position)]
        ),
        drafter_bubble_share=_bubble_share(drafts),
        verifier_bubble_share=_bubble_share([_pass(step) for step in known_steps]),
    )


def _is_completed(request: RequestTimes) -> bool:
    return request.finish_s is not None and request.finish_reason not in CUT_SHORT


def _makespan_s(requests: Sequence[RequestTimes]) -> float | None:
    if not requests:
        return None
    return max(map(_last_s, requests)) - min(each.arrival_s for each in requests)


def _last_s(request: RequestTimes) -> float:
    """When the request is last known to have been served."""
    ends = (request.finish_s, request.first_token_s, *(time_s for time_s, _ in request.token_s))
    return max((end for end in ends if end is not None), default=request.arrival_s)


def _ttft_ms(request: RequestTimes) -> float | None:
    return _ms_between(request.arrival_s, request.first_token_s)


def _tpot_ms(request: RequestTimes) -> float | None:
    rest = max(0, request.num_output_tokens - 1)
    return _ratio(_ms_between(request.first_token_s, request.finish_s), rest)


def _end_to_end_ms(request: RequestTimes) -> float | None:
    return _ms_between(request.arrival_s, request.finish_s)


def _gaps_ms(request: RequestTimes) -> list[float]:
    # A delivery without tokens (the end of a request, say) ends no wait for one.
    times_s = [time_s for time_s, num_tokens in request.token_s if num_tokens]
    return [MS_PER_S * (b - a) for a, b in itertools.pairwise(times_s)]


def _keeps(request: RequestTimes, slo: Slo) -> bool:
    """A bound on a time that a request does not have (TPOT of a single token) is kept."""
    measured = ((_ttft_ms(request), slo.ttft_ms), (_tpot_ms(request), slo.tpot_ms))
    return all(time is None or bound is None or time <= bound for time, bound in measured)


def _decode_tokens_per_s(steps: Sequence[StepRecord]) -> float | None:
    """Tokens of the steps without prompt tokens over their time.

    A step's time runs from the end of the pass before it, so that drafting and planning in
    between count; the first one's from its own first work. Idle time ends with the prompt of
    a new request, and so falls to steps that do not count.
    """
    tokens = time_ns = 0
    before_ns: int | None = None
    for step in sorted(steps, key=lambda each: each.verify_end_ns):
        draft = _draft(step)
        begin_ns = step.verify_start_ns if draft is None else min(draft[0], step.verify_start_ns)
        if step.num_prefill_tokens == 0:
            tokens += step.num_output_tokens
            time_ns += step.verify_end_ns - (begin_ns if before_ns is None else before_ns)
        before_ns = step.verify_end_ns
    return _ratio(tokens, time_ns / NS_PER_S)


def _draft(step: StepRecord) -> Interval | None:
    if step.draft_start_ns is None or step.draft_end_ns is None:
        return None
    return step.draft_start_ns, step.draft_end_ns


def _pass(step: StepRecord) -> Interval:
    return step.verify_start_ns, step.verify_end_ns


def _bubble_share(work: Iterable[Interval]) -> float | None:
    busy = union(work)
    if not busy:
        return None
    return 1.0 - length(busy) / (busy[-1][1] - busy[0][0])


def _quantiles(values: Iterable[float | None]) -> Quantiles | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Quantiles(
        median=_quantile(known, 0.5),
        p90=_quantile(known, 0.9),
        p99=_quantile(known, 0.99),
        num_values=len(known),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _ms_between(start_s: float | None, end_s: float | None) -> float | None:
    if start_s is None or end_s is None:
        return None
    return MS_PER_S * (end_s - start_s)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
