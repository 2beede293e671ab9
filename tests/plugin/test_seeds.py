"""Seeded requests: what their tokens depend on, and what they do not.

vLLM draws for a seeded request from a generator of its own, and once more for each draft
token of a step. So its tokens are settled by its drafts and by how many are verified in each
step: nothing else in the batch may touch them. Engines run in this process, where all
requests of a call arrive before the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import minedraft
from engines import draft_options, random_prompts
from scenarios import ENGINE as COMMON
from scenarios import Answer, Params, ask, running_llm

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

# -- one row of the sampler ----------------------------------------------------------

VOCAB = 40
SEED = 11


def _metadata(drafts: list[list[int]]) -> Any:
    """vLLM's, for the drafts of each request."""
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    counts = torch.tensor([len(each) for each in drafts])
    ends = (counts + 1).cumsum(0)
    bonus = ends - 1
    is_bonus = torch.zeros(int(ends[-1]), dtype=torch.bool)
    is_bonus[bonus] = True
    return SpecDecodeMetadata(
        draft_token_ids=torch.tensor([t for each in drafts for t in each], dtype=torch.int32),
        num_draft_tokens=counts.tolist(),
        cu_num_draft_tokens=counts.cumsum(0).to(torch.int32),
        cu_num_sampled_tokens=ends.to(torch.int32),
        target_logits_indices=(~is_bonus).nonzero().squeeze(-1).to(torch.int32),
        bonus_logits_indices=bonus.to(torch.int32),
        logits_indices=torch.arange(int(ends[-1]), dtype=torch.int32),
    )


def _sampling_metadata(temperatures: list[float], generators: dict[int, torch.Generator]) -> Any:
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    return SamplingMetadata(
        temperature=torch.tensor(temperatures),
        all_greedy=False,
        all_random=min(temperatures) > 0,
        top_p=None,
        top_k=None,
        generators=generators,
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=torch.tensor([]),
        presence_penalties=torch.tensor([]),
        repetition_penalties=torch.tensor([]),
        output_token_ids=[[] for _ in temperatures],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


def _sampler() -> Any:
    from vllm.platforms import current_platform
    from vllm.v1.sample.sampler import Sampler

    from minedraft.plugin.cpu_kernels import register_expand
    from minedraft.plugin.worker import MineDraftRejectionSampler

    if current_platform.is_cpu():
        current_platform.import_kernels()
        current_platform.register_triton_kernel_overrides()
    register_expand()
    sampler = MineDraftRejectionSampler(Sampler())
    sampler.draft_probs_of = lambda metadata, vocab_size: None
    return sampler


#: Neighbours, as (drafts, temperature, seed), in front of the seeded request and behind it.
Neighbour = tuple[list[int], float, int | None]
NEIGHBOURS: dict[str, tuple[list[Neighbour], list[Neighbour]]] = {
    "nobody": ([], []),
    "without drafts": ([([], 1.0, None)], [([], 0.0, None)]),
    "greedy": ([([1, 2, 3], 0.0, None)], [([4], 0.0, None)]),
    "drafted and seeded": ([([3, 2, 1, 0], 0.7, SEED)], [([7, 7], 1.3, 5)]),
    "of all kinds": ([([], 0.9, 4), ([6, 6], 1.0, None)], [([1], 0.0, None), ([], 2.0, 8)]),
}


def _row(drafts: list[int], around: tuple[list[Neighbour], list[Neighbour]]) -> Any:
    """What the seeded request gets, and the state of its generator after the step."""
    torch.manual_seed(len(around[0]))  # of everybody without a seed
    front, behind = around
    everyone = [*front, (drafts, 1.0, SEED), *behind]
    generators = {
        at: torch.Generator().manual_seed(seed)
        for at, (_, _, seed) in enumerate(everyone)
        if seed is not None
    }
    own = torch.randn(len(drafts) + 1, VOCAB, generator=torch.Generator().manual_seed(2))
    before = torch.randn(sum(len(each[0]) + 1 for each in front), VOCAB)
    after = torch.randn(sum(len(each[0]) + 1 for each in behind), VOCAB)
    output = _sampler()(
        _metadata_of(everyone),
        None,
        torch.cat([before, own, after]),
        _sampling_metadata([each[1] for each in everyone], generators),
    )
    tokens = [token for token in output.sampled_token_ids[len(front)].tolist() if token >= 0]
    return tokens, generators[len(front)].get_state().tolist()


def _metadata_of(everyone: list[Neighbour]) -> Any:
    metadata = _metadata([each[0] for each in everyone])
    assert metadata.max_spec_len == max(len(each[0]) for each in everyone)
    return metadata


@pytest.mark.parametrize("drafts", [[], [5], [5, 9, 2, 30]], ids=len)
@pytest.mark.parametrize("around", list(NEIGHBOURS)[1:])
def test_neighbours_in_a_step_change_nothing(drafts: list[int], around: str) -> None:
    assert _row(drafts, NEIGHBOURS[around]) == _row(drafts, NEIGHBOURS["nobody"])


# -- whole engines -------------------------------------------------------------------

#: All but the last begin decoding together; the last one takes its prompts in by pieces.
ENGINES: dict[str, dict[str, Any]] = {
    "sequential, greedy": {"mode": "sequential"},
    "two-batch, greedy": {"mode": "two-batch"},
    "two-batch, drawn": {"mode": "two-batch", "draft_sample_method": "probabilistic"},
    "wait-free, cramped": {"mode": "wait-free", "draft_sample_method": "probabilistic"},
}
CRAMPED: dict[str, Any] = {
    "num_gpu_blocks_override": 40,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": False,
    "disable_log_stats": False,
}
PROMPTS = [[7, 8, 9], *random_prompts(6, seed=61, longest=100)]
LONG = [(5 * at) % 490 + 3 for at in range(170)]
TOKENS = 16
BLOCK = COMMON["block_size"]
#: Longer than any seeded request can last, so that nobody leaves before it.
NEIGHBOUR_TOKENS = 5 * TOKENS + 5
SEEDED: Params = {"temperature": 1.0, "seed": 5, "max_tokens": TOKENS}
UNDRAFTED = {"extra_args": {"minedraft_num_speculative_tokens": 0}}
CROWDS: dict[str, list[Params]] = {
    "seeded": [{"temperature": 1.0, "seed": seed} for seed in (5, 6, 7)],
    "of all kinds": [
        {},
        {"temperature": 0.8, "repetition_penalty": 1.2},
        {"temperature": 1.0, "seed": 5, **UNDRAFTED},
        {"temperature": 1.0, "top_p": 0.9},
        UNDRAFTED,
    ],
}


@pytest.fixture(scope="module")
def plain(pairs: dict[str, Any]) -> list[Answer]:
    """The first prompt and the long one, each alone, as vLLM answers them without drafts."""
    with running_llm(pairs["high"].target) as llm:
        return [ask(llm, [each], [SEEDED])[0][0] for each in (PROMPTS[0], LONG)]


@pytest.fixture(scope="module", params=ENGINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def llm(name: str, plain: Any, pairs: dict[str, Any]) -> Iterator[Any]:
    options = draft_options(pairs["high"], **ENGINES[name])
    engine = CRAMPED if "cramped" in name else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        arguments = minedraft.engine_args(**options)
        with running_llm(pairs["high"].target, **engine, **arguments) as llm:
            yield llm


@pytest.fixture(scope="module")
def seeded_answers() -> dict[str, Answer]:
    """Drafted answers by the kind of drafts, from whichever mode came first."""
    return {}


def _beside(llm: Any, prompt: list[int], params: Params, crowd: list[Params]) -> Answer:
    """The answer to one request that arrives together with a crowd."""
    others = [{**each, "max_tokens": NEIGHBOUR_TOKENS} for each in crowd]
    prompts = [prompt, *(PROMPTS[1 + at] for at in range(len(crowd)))]
    return ask(llm, prompts, [params, *others])[0][0]


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_seeded_request_without_drafts_is_answered_as_by_vllm(
    llm: Any, plain: list[Answer], crowd: str
) -> None:
    """In every mode, beside anybody, through prompts in pieces."""
    params = {**SEEDED, **UNDRAFTED}
    assert [_beside(llm, each, params, CROWDS[crowd]) for each in (PROMPTS[0], LONG)] == plain


def test_seeded_requests_that_are_preempted(name: str, llm: Any, plain: list[Answer]) -> None:
    if "cramped" not in name:
        pytest.skip("needs the engine with little room")
    before = _preemptions(llm)
    long = [{"max_tokens": 250}] * 6
    params = {**SEEDED, **UNDRAFTED}
    answers = ask(llm, [*PROMPTS[1:], PROMPTS[0], LONG], [*long, params, params])
    assert [each[0] for each in answers[-2:]] == plain
    assert _preemptions(llm) > before, "the pool was not tight"


@pytest.mark.parametrize("params", [UNDRAFTED, {}], ids=["without drafts", "with drafts"])
def test_a_hit_in_the_prefix_cache_changes_nothing(name: str, llm: Any, params: Params) -> None:
    """All but the last token of the prompt are there the second time."""
    if "cramped" in name:
        pytest.skip("needs the prefix cache, and drafts that do not depend on timing")
    prompt = [9 + len(params), *range(100, 100 + 2 * BLOCK)]
    first, again = (ask(llm, [prompt], [{**SEEDED, **params}]) for _ in range(2))
    assert again == first


def test_neighbours_change_nothing_while_all_have_drafts(
    name: str, llm: Any, seeded_answers: dict[str, Answer]
) -> None:
    """Those that arrive together; the same in every mode with the same kind of drafts."""
    if "cramped" in name:
        pytest.skip("how many drafts are verified depends on timing")
    alone = ask(llm, PROMPTS[:1], [SEEDED])[0][0]
    assert alone == seeded_answers.setdefault(name.split(", ")[1], alone)
    for crowd in CROWDS.values():
        assert _beside(llm, PROMPTS[0], SEEDED, crowd) == alone
    assert ask(llm, PROMPTS[:1], [{**SEEDED, "seed": 6}])[0][0] != alone


def _preemptions(llm: Any) -> int:
    metrics = llm.get_metrics()
    return int(next(each.value for each in metrics if each.name == "vllm:num_preemptions"))
