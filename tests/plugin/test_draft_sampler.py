"""Drawn drafts, and that verification with them has exactly the target's distribution."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from minedraft.transport.messages import Candidates, Sampling

pytestmark = pytest.mark.vllm

SAMPLES = 50_000
VOCAB = 12
#: A right sampler fails one in a thousand such tests; the seeds are fixed, so none does.
ALPHA = 0.001


def _draw(
    logits: torch.Tensor, samplings: list[Sampling], width: int = 6, position: int = 0
) -> Any:
    from minedraft.plugin.draft_sampler import Draw, draw

    return draw(logits, [Draw(each, position) for each in samplings], width)


def _p_value(counts: Any, probs: Any) -> float:
    """Of Pearson's test that `counts` are draws from `probs`; cells of 5 and less are merged."""
    from scipy.stats import chisquare

    expected = np.asarray(probs, dtype=float) * counts.sum()
    assert counts[expected == 0].sum() == 0, "something impossible was drawn"
    big = expected > 5
    cells = np.append(counts[big], counts[~big].sum())
    wanted = np.append(expected[big], expected[~big].sum())
    if wanted[-1] == 0:
        cells, wanted = cells[:-1], wanted[:-1]
    return float(chisquare(cells, wanted * cells.sum() / wanted.sum()).pvalue)


# -- the draw ------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_draws_have_the_distribution_that_is_sent(temperature: float) -> None:
    torch.manual_seed(1)
    logits = torch.randn(VOCAB).expand(SAMPLES, VOCAB)
    tokens, ids, probs = _draw(logits, [Sampling(temperature)] * SAMPLES)
    assert ids.dtype == torch.int32
    assert probs.dtype == torch.float32
    sent = np.zeros(VOCAB)
    sent[ids[0].numpy()] = probs[0].numpy()
    expected = (logits[0] / temperature).softmax(-1).numpy().copy()
    expected[np.argsort(expected)[:-6]] = 0
    assert sent == pytest.approx(expected / expected.sum(), abs=1e-6)
    assert _p_value(np.bincount(tokens.numpy(), minlength=VOCAB), sent) > ALPHA


def test_top_k_and_top_p_cut_the_candidates() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).expand(4, 4)
    samplings = [Sampling(1.0, 1), Sampling(1.0, 2), Sampling(1.0, 0, 0.6), Sampling(1.0, 0, 0.7)]
    _, _, probs = _draw(logits, samplings, width=4)
    assert (probs > 0).sum(-1).tolist() == [1, 2, 1, 2]
    assert probs.sum(-1).tolist() == pytest.approx([1.0] * 4)


def test_a_seed_fixes_the_draw_for_its_position_only() -> None:
    logits = torch.zeros(40, VOCAB)
    seeded = [Sampling(1.0, seed=number) for number in range(40)]
    first = _draw(logits, seeded, VOCAB, position=3)[0]
    again = _draw(logits.flip(0), seeded[::-1], VOCAB, position=3)[0].flip(0)
    later = _draw(logits, seeded, VOCAB, position=4)[0]
    assert first.tolist() == again.tolist()
    assert first.tolist() != later.tolist()
    assert len(set(first.tolist())) > 3


def test_huge_and_tiny_temperatures_give_numbers() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0, 5.0]]).expand(2, 4)
    tokens, _, probs = _draw(logits, [Sampling(1e-5), Sampling(1e6)], width=4)
    assert torch.isfinite(probs).all()
    assert probs.sum(-1).tolist() == pytest.approx([1.0, 1.0])
    assert tokens[0] == 0


# -- the matrix ----------------------------------------------------------------------


def _candidates(ids: torch.Tensor, probs: torch.Tensor) -> Candidates:
    """Of one request: `ids` and `probs` are [drafts, width]."""
    return Candidates(ids.shape[-1], ids.numpy().tobytes(), probs.numpy().tobytes())


def test_rows_follow_the_request_not_the_order() -> None:
    from minedraft.plugin.draft_probs import dense_draft_probs

    ids = torch.tensor([[4, 1], [0, 2]], dtype=torch.int32)
    probs = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    candidates = {"a": _candidates(ids, probs)}
    tokens = torch.tensor([3, 4, 0, 2], dtype=torch.int32)
    dense = dense_draft_probs(candidates, ["b", "none", "a", "c"], [1, 0, 2, 1], tokens, 5)
    assert dense.tolist() == [
        [0, 0, 0, 1, 0],
        [0, 0.25, 0, 0, 0.75],
        [0.5, 0, 0.5, 0, 0],
        [0, 0, 1, 0, 0],
    ]


def test_fewer_drafts_scheduled_than_made() -> None:
    from minedraft.plugin.draft_probs import dense_draft_probs

    ids = torch.tensor([[4, 1], [0, 2]], dtype=torch.int32)
    candidates = {"a": _candidates(ids, torch.full((2, 2), 0.5))}
    dense = dense_draft_probs(candidates, ["a"], [1], torch.tensor([4]), 5)
    assert dense.tolist() == [[0, 0.5, 0, 0, 0.5]]


def test_tokens_that_fill_up_have_no_probability() -> None:
    from minedraft.plugin.draft_probs import dense_draft_probs

    candidates = {
        "a": _candidates(torch.tensor([[4, 1]], dtype=torch.int32), torch.full((1, 2), 0.5))
    }
    dense = dense_draft_probs(candidates, ["b", "a"], [2, 1], torch.tensor([2, -1, 4]), 5)
    assert dense.tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0.5, 0, 0, 0.5]]


# -- verification --------------------------------------------------------------------


def _metadata(tokens: torch.Tensor) -> Any:
    """vLLM's, for `tokens` [requests, k]."""
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    count, k = tokens.shape
    rows = torch.arange(count * (k + 1), dtype=torch.int32).reshape(count, k + 1)
    return SpecDecodeMetadata(
        draft_token_ids=tokens.reshape(-1),
        num_draft_tokens=[k] * count,
        cu_num_draft_tokens=torch.arange(k, (count + 1) * k, k, dtype=torch.int32),
        cu_num_sampled_tokens=torch.arange(k + 1, (count + 1) * (k + 1), k + 1, dtype=torch.int32),
        target_logits_indices=rows[:, :k].reshape(-1),
        bonus_logits_indices=rows[:, k].contiguous(),
        logits_indices=rows.reshape(-1),
    )


def _sampling_metadata(count: int, temperature: float) -> Any:
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    return SamplingMetadata(
        temperature=torch.full((count,), temperature),
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=torch.tensor([]),
        presence_penalties=torch.tensor([]),
        repetition_penalties=torch.tensor([]),
        output_token_ids=[[] for _ in range(count)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


def _sampler(draft_probs_of: Any) -> Any:
    from vllm.platforms import current_platform
    from vllm.v1.sample.sampler import Sampler

    from minedraft.plugin.cpu_kernels import register_expand
    from minedraft.plugin.worker import MineDraftRejectionSampler

    if current_platform.is_cpu():
        current_platform.import_kernels()
        current_platform.register_triton_kernel_overrides()
    register_expand()
    sampler = MineDraftRejectionSampler(Sampler())
    sampler.draft_probs_of = draft_probs_of
    return sampler


def _verified(
    target: torch.Tensor, draft: torch.Tensor, temperature: float, method: str, permute: bool
) -> np.ndarray[Any, Any]:
    """Output tokens [samples, k + 1] (-1: none) for logits that depend on the position only.

    `target` is [k + 1, VOCAB], `draft` is [k, VOCAB]. With `permute` the verifier sees the
    requests in another order than the drafter did.
    """
    from minedraft.plugin.draft_probs import dense_draft_probs

    k = draft.shape[0]
    names = [f"r{number}" for number in range(SAMPLES)]
    draws = [_draw(row.expand(SAMPLES, VOCAB), [Sampling(temperature)] * SAMPLES) for row in draft]
    if method == "greedy":
        tokens = draft.argmax(-1).expand(SAMPLES, k)
        candidates = {}
    else:
        tokens = torch.stack([each[0] for each in draws], dim=1)
        ids = torch.stack([each[1] for each in draws], dim=1)
        probs = torch.stack([each[2] for each in draws], dim=1)
        candidates = {name: _candidates(ids[at], probs[at]) for at, name in enumerate(names)}
    order = torch.randperm(SAMPLES) if permute else torch.arange(SAMPLES)
    tokens = tokens[order].to(torch.int32)
    shuffled = [names[at] for at in order.tolist()]
    metadata = _metadata(tokens)

    def draft_probs_of(metadata: Any, vocab_size: int) -> Any:
        if not candidates:
            return None
        return dense_draft_probs(
            candidates, shuffled, metadata.num_draft_tokens, metadata.draft_token_ids, vocab_size
        )

    logits = target.repeat(SAMPLES, 1)
    output = _sampler(draft_probs_of)(
        metadata, None, logits, _sampling_metadata(SAMPLES, temperature)
    )
    return np.asarray(output.sampled_token_ids.numpy())


CASES = [
    (temperature, k, method)
    for temperature in (0.7, 1.0)
    for k in (1, 4)
    for method in ("greedy", "probabilistic")
]


@pytest.mark.parametrize(("temperature", "k", "method"), CASES)
def test_output_has_the_targets_distribution(temperature: float, k: int, method: str) -> None:
    torch.manual_seed(100 + k)
    target, draft = torch.randn(k + 1, VOCAB) * 1.5, torch.randn(k, VOCAB) * 0.3
    draft += target[:k]
    got = _verified(target, draft, temperature, method, permute=True)
    probs = (target / temperature).softmax(-1).numpy()
    for position in range(k + 1):
        tokens = got[:, position]
        tokens = tokens[tokens >= 0]
        assert len(tokens) > 500
        counts = np.bincount(tokens, minlength=VOCAB)
        assert _p_value(counts, probs[position]) > ALPHA, f"position {position}"


@pytest.mark.parametrize("fault", ["another distribution", "another request's rows"])
def test_the_test_sees_a_broken_sampler(fault: str) -> None:
    torch.manual_seed(5)
    target = torch.randn(2, VOCAB) * 1.5
    draft = target[:1] + torch.randn(1, VOCAB)
    if fault == "another distribution":
        logits = draft.expand(SAMPLES, VOCAB)
    else:
        # Two kinds of requests; the verifier takes the rows of one for those of the other.
        logits = torch.stack([draft[0], draft[0].flip(0)]).repeat(SAMPLES // 2, 1)
    tokens, ids, sent = _draw(logits, [Sampling(1.0)] * SAMPLES)
    probs = torch.zeros(SAMPLES, VOCAB).scatter_(1, ids.to(torch.int64), sent)
    wrong = probs.roll(1, dims=1 if fault == "another distribution" else 0).contiguous()
    p_values = [_first_token_p_value(each, tokens, target) for each in (wrong, probs)]
    assert p_values[0] < 1e-9
    assert p_values[1] > ALPHA


def _first_token_p_value(probs: torch.Tensor, drafts: torch.Tensor, target: torch.Tensor) -> float:
    output = _sampler(lambda metadata, vocab_size: probs)(
        _metadata(drafts[:, None].to(torch.int32)),
        None,
        target.repeat(SAMPLES, 1),
        _sampling_metadata(SAMPLES, 1.0),
    )
    counts = np.bincount(output.sampled_token_ids[:, 0].numpy(), minlength=VOCAB)
    return _p_value(counts, target[0].softmax(-1).numpy())


def test_drawn_drafts_are_accepted_more_often() -> None:
    torch.manual_seed(6)
    target = torch.randn(2, VOCAB) * 1.5
    draft = target[:1] + 0.3 * torch.randn(1, VOCAB)
    rates = {
        method: (_verified(target, draft, 1.0, method, permute=False)[:, 1] >= 0).mean()
        for method in ("greedy", "probabilistic")
    }
    assert rates["probabilistic"] > rates["greedy"] + 0.1


def test_a_thinking_budget_ends_the_right_request_in_a_step_without_drafts() -> None:
    from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder

    start, end = 1, 2
    marks = SimpleNamespace(reasoning_start_token_ids=[start], reasoning_end_token_ids=[end])
    holder = ThinkingBudgetStateHolder(marks, 4, 4, torch.device("cpu"), False)  # type: ignore[arg-type]
    free, spent = (SimpleNamespace(thinking_token_budget=each) for each in (None, 0))
    added = [(0, free, [5], []), (1, spent, [start, 5], [])]
    holder.sync_batch(SimpleNamespace(removed=[], added=added, moved=[]))  # type: ignore[arg-type]
    metadata = _sampling_metadata(2, 1.0)
    metadata.thinking_budget_state_holder = holder
    metadata.spec_token_ids = [[], []]
    logits = torch.full((2, VOCAB), -1e4)
    logits[:, 7] = 0.0
    drafts = torch.zeros((2, 0), dtype=torch.int32)
    output = _sampler(lambda metadata, vocab_size: None)(_no_drafts(drafts), None, logits, metadata)
    assert output.sampled_token_ids[:, 0].tolist() == [7, end]


def _no_drafts(tokens: torch.Tensor) -> Any:
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    rows = torch.arange(len(tokens), dtype=torch.int32)
    return SpecDecodeMetadata(
        draft_token_ids=tokens.reshape(-1),
        num_draft_tokens=[0] * len(tokens),
        cu_num_draft_tokens=torch.zeros(len(tokens), dtype=torch.int32),
        cu_num_sampled_tokens=rows + 1,
        target_logits_indices=rows[:0],
        bonus_logits_indices=rows,
        logits_indices=rows,
    )
