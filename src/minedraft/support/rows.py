"""The rows of docs/support.md, area by area, each with the test that shows it.

Owns what is claimed; it refuses nothing itself, and what no test shows is called untested.
"""

from __future__ import annotations

from minedraft.support.row import Row, Verdict

_SAMPLING = "tests/plugin/test_features_sampling.py::"
_LIFE = "tests/plugin/test_features_lifecycle.py::"
_MODELS = "tests/plugin/test_features_models.py::"
_REFUSED = "tests/plugin/test_refused_models.py::"
_CONFIG = "tests/plugin/test_engine_config.py::"
_SCHEDULER = "tests/plugin/test_scheduler.py::"
_FAULTS = "tests/plugin/test_faults.py::"
_SAMPLED = "tests/plugin/test_sampled_drafts.py::"
_LOSSLESS = "tests/plugin/test_lossless.py::"
_SERVER = "tests/plugin/test_server.py::"
_SEEDS = "tests/plugin/test_seeds.py::"
_REASONING = "tests/plugin/test_features_reasoning.py::"
_METHODS = "tests/plugin/test_methods.py::"
_TOOLS = "tests/plugin/test_server_tools.py::"

_EQUALS_PLAIN = _SAMPLING + "test_equals_plain_vllm"
_ARGUMENTS = _CONFIG + "test_refused_arguments"


def _works(area: str, feature: str, test: str, note: str = "") -> Row:
    return Row(area, feature, Verdict.WORKS, note, test)


def _undrafted(area: str, feature: str, test: str, note: str = "") -> Row:
    return Row(area, feature, Verdict.WITHOUT_DRAFTS, note, test)


def _refused(area: str, feature: str, test: str, note: str = "") -> Row:
    return Row(area, feature, Verdict.REFUSED, note, test)


def _untested(area: str, feature: str, note: str = "") -> Row:
    return Row(area, feature, Verdict.UNTESTED, note)


_MODES_AND_WAYS_IN = (
    _works("Modes", "`none`", _LOSSLESS + "test_all_at_once", "the loop without drafts"),
    _works("Modes", "`sequential`", _LOSSLESS + "test_all_at_once"),
    _works("Modes", "`two-batch`", _LOSSLESS + "test_all_at_once"),
    _works("Modes", "`pearl`", _LOSSLESS + "test_all_at_once"),
    _works("Modes", "`wait-free`", _LOSSLESS + "test_all_at_once"),
    _works(
        "Modes",
        "`two-batch` with one request",
        _SCHEDULER + "test_one_request_is_sequential_and_a_second_brings_two_batches_back",
        "runs as `sequential`",
    ),
    _works("Ways in", "`minedraft serve`", _SERVER + "test_streaming_clients_at_1_4_and_16"),
    _works(
        "Ways in",
        "`vllm serve --additional-config`",
        _SERVER + "test_streaming_clients_at_1_4_and_16",
    ),
    _works("Ways in", "`LLM(..., **minedraft.engine_args(...))`", _LOSSLESS + "test_all_at_once"),
    _works("Ways in", "`AsyncLLM`", _LIFE + "test_aborts_at_every_stage"),
    _works(
        "Ways in",
        "`VLLM_ENABLE_V1_MULTIPROCESSING=0`",
        _EQUALS_PLAIN,
        "shown in mode `wait-free`",
    ),
    _works(
        "Ways in",
        "engines one after the other in a process",
        _EQUALS_PLAIN,
        "the cores of the first are not taken for the user's",
    ),
    _untested("Ways in", "several engines at once in a process"),
)

_DRAFTS = (
    _works("Drafts", "greedy drafts, greedy requests", _EQUALS_PLAIN, "equal in fp32, eager"),
    _works(
        "Drafts",
        "greedy drafts, sampled requests",
        _SAMPLED + "test_output_has_the_targets_distribution",
        "the target's distribution",
    ),
    _works(
        "Drafts",
        "greedy drafts, `top_k` of 1",
        _LOSSLESS + "test_top_k_of_one_is_greedy",
        "through the random sampler",
    ),
    _works(
        "Drafts",
        "drawn drafts, sampled requests",
        _SAMPLED + "test_output_has_the_targets_distribution",
        "`draft_sample_method = probabilistic`; the target's distribution",
    ),
    _works(
        "Drafts",
        "acceptance like vLLM's own `draft_model` method",
        _LOSSLESS + "test_acceptance_equals_that_of_vllm",
    ),
    _works(
        "Drafts",
        "a drafter that is killed or hangs",
        _FAULTS + "test_a_drafter_that_is_killed_again_and_again",
        "requests go on without drafts; it is started again",
    ),
    _works(
        "Drafts",
        "a drafter that is late",
        _FAULTS + "test_a_drafter_that_stops_for_a_while",
        "requests go on without drafts until it answers",
    ),
    _works(
        "Drafts",
        "fewer drafts for one request",
        _SCHEDULER + "test_a_request_may_ask_for_fewer_drafts",
        "`minedraft_num_speculative_tokens` in `extra_args`",
    ),
    _undrafted(
        "Drafts",
        "a request that opts out",
        _SCHEDULER + "test_a_request_may_ask_for_fewer_drafts",
        "`minedraft_num_speculative_tokens` = 0",
    ),
    _works(
        "Drafts",
        "n-gram lookup",
        _METHODS + "test_drafts_in_an_engine_are_those_of_vllms_proposer",
        "`draft_method = ngram`; the drafts of vLLM's own, token by token",
    ),
    _untested(
        "Drafts",
        "suffix trees",
        "`draft_method = suffix`; its tests run where arctic-inference is installed, which "
        "`scripts/setup` does not do. There the drafts are vLLM's own",
    ),
    _works(
        "Drafts",
        "a drafter of your own",
        _METHODS + "test_output_is_the_targets",
        "`draft_method = package.module:Class` (docs/add_a_drafter.md)",
    ),
    _refused(
        "Drafts",
        "drawn drafts, or TETRIS, without a draft model",
        "tests/methods/test_registry.py::test_options_that_do_not_go_together_are_refused",
    ),
    _works(
        "Drafts",
        "EAGLE heads",
        "tests/plugin/test_heads.py::test_output_is_the_targets",
        "`draft_method = eagle`, with the acceptance they have inside vLLM (docs/heads.md)",
    ),
    _works(
        "Drafts",
        "EAGLE-3 heads",
        "tests/plugin/test_heads.py::test_eagle3_has_the_acceptance_that_it_has_inside_vllm",
        "`draft_method = eagle3`",
    ),
    _works(
        "Drafts",
        "Medusa heads",
        "tests/plugin/test_medusa.py::test_output_is_the_targets",
        "`draft_method = medusa`, with the acceptance they have inside vLLM; not in `pearl`, no "
        "drawn drafts",
    ),
    _untested("Drafts", "MTP and other kinds of drafts"),
)

_DRAFT_MODELS = (
    _works(
        "Draft models",
        "a larger vocabulary (padding)",
        _MODELS + "test_a_drafter_with_a_padded_vocabulary",
        "drafts end before an id that the target lacks",
    ),
    _refused(
        "Draft models",
        "a smaller vocabulary",
        _REFUSED + "test_a_draft_model_with_a_smaller_vocabulary",
    ),
    _refused(
        "Draft models", "another tokenizer", _REFUSED + "test_a_draft_model_with_another_tokenizer"
    ),
    _untested(
        "Draft models",
        "a target with `skip_tokenizer_init`",
        "tokenizers are not compared",
    ),
    _undrafted(
        "Draft models",
        "requests longer than its context",
        _SAMPLING + "test_only_requests_beyond_the_drafters_context_lose_drafts",
        "shorter ones beside them keep theirs",
    ),
    _undrafted(
        "Draft models",
        "requests that its KV pool has no room for",
        "tests/drafter/test_book.py::test_a_full_pool_declines_the_newest_and_they_come_back",
        "until there is room",
    ),
    _refused(
        "Draft models",
        "Mamba, hybrid, linear attention",
        _REFUSED + "test_a_draft_model_with_recurrent_layers",
        "state cannot be taken back after a rejection",
    ),
    _untested("Draft models", "quantised"),
    _untested("Draft models", "sliding-window attention"),
)

_TARGETS = (
    _works("Targets", "Llama, made up, fp32", _LOSSLESS + "test_all_at_once"),
    _works(
        "Targets",
        "SmolLM2-135M-Instruct, fp32",
        "tests/plugin/test_real_models.py::test_output_is_the_targets_own",
    ),
    _untested("Targets", "bf16, fp16", "ties between two logits fall as the batch's shape has it"),
    _untested("Targets", "quantised"),
    _untested("Targets", "sliding-window attention"),
    _untested("Targets", "mixture of experts"),
    _refused(
        "Targets",
        "Mamba, hybrid, linear attention",
        _REFUSED + "test_targets",
        "state cannot be taken back after a rejection",
    ),
    _refused("Targets", "encoder-decoder", _REFUSED + "test_targets"),
    _refused("Targets", "pooling", _REFUSED + "test_pooling_targets"),
    _untested("Targets", "diffusion", "meant to be refused"),
    _untested("Targets", "multimodal", "requests with media are meant to run without drafts"),
    _works(
        "Targets",
        "LoRA adapters",
        _MODELS + "test_adapters_on_the_target_and_none_on_the_drafter",
        "the drafter has none; on CPUs vLLM 0.32 itself answers requests without an adapter "
        "wrongly beside requests with one",
    ),
)

_PARALLEL = (
    _works(
        "Parallelism",
        "tensor parallel target",
        _MODELS + "test_a_target_on_two_workers",
        "shown with two workers on CPUs",
    ),
    _untested("Parallelism", "tensor parallel drafter"),
    _refused("Parallelism", "pipeline parallel", _ARGUMENTS),
    _works(
        "Parallelism",
        "data parallel",
        "tests/plugin/test_replicas.py::test_each_has_a_drafter",
        "dense models, all replicas on one machine, each with a drafter of its own",
    ),
    _refused("Parallelism", "data parallel by Ray or an outer load balancer", _ARGUMENTS),
    _untested("Parallelism", "data parallel mixture of experts", "meant to be refused"),
    _untested("Parallelism", "context parallel, expert parallel"),
    _refused("Parallelism", "Ray and other executors", _ARGUMENTS),
    _untested("Parallelism", "several nodes"),
)

_ENGINE = (
    _refused("Engine", "a `speculative_config` of your own", _ARGUMENTS),
    _refused("Engine", "a scheduler or worker class of your own", _ARGUMENTS),
    _refused("Engine", "async scheduling", _ARGUMENTS),
    _refused("Engine", "Model Runner V2", _CONFIG + "test_model_runner_v2_is_refused"),
    _works(
        "Engine",
        "chunked prefill",
        _EQUALS_PLAIN,
        "long and short prompts, 64 tokens a step",
    ),
    _works("Engine", "prefix caching", _SAMPLING + "test_prefix_cache"),
    _works(
        "Engine",
        "prefix caching of the drafter",
        "tests/drafter/test_book.py::test_prefixes_in_the_cache_are_not_computed_again",
    ),
    _works("Engine", "preemption", _SAMPLING + "test_priorities_and_preemption"),
    _works("Engine", "priority scheduling", _SAMPLING + "test_priorities_and_preemption"),
    _untested("Engine", "KV connectors, KV offloading, disaggregated prefill"),
    _untested("Engine", "custom logits processors", "vLLM refuses them with drafts"),
    _untested("Engine", "compilation on a CPU", "seen to be wrong in vLLM 0.32.0 itself"),
    _untested("Engine", "CUDA graphs"),
)

_LIFE_CYCLE = (
    _works("Life cycle", "abort at any time", _LIFE + "test_aborts_at_every_stage"),
    _works(
        "Life cycle",
        "an id used again at once",
        _SCHEDULER + "test_an_id_may_be_used_again_at_once",
    ),
    _works("Life cycle", "pause, requests kept", _LIFE + "test_pause_and_keep"),
    _works("Life cycle", "pause after the running requests", _LIFE + "test_pause_and_wait"),
    _works("Life cycle", "pause with abort", _LIFE + "test_pause_and_abort"),
    _works(
        "Life cycle",
        "sleep and wake up",
        _LIFE + "test_sleep_and_wake_up",
        "on a CPU, which frees nothing",
    ),
    _untested("Life cycle", "sleep on a GPU", "the drafter would keep its memory"),
    _works(
        "Life cycle",
        "reset of the prefix cache",
        _LIFE + "test_reset_of_the_prefix_cache_preempts_and_changes_nothing",
    ),
    _undrafted("Life cycle", "streaming-input sessions", _LIFE + "test_streaming_input"),
    _untested("Life cycle", "weight updates", "the drafter would keep the old weights"),
    _works(
        "Life cycle",
        "nothing left behind when the front end is killed",
        "tests/plugin/test_processes.py::test_nothing_stays_behind",
    ),
)

_REQUESTS = (
    *(
        _works("Requests", feature, _EQUALS_PLAIN)
        for feature in (
            "stop token ids, stop strings, end of sequence",
            "`max_tokens` from 1 to k + 1",
            "up to the last position of `max_model_len`",
            "repetition, presence and frequency penalty",
            "`bad_words`",
            "`allowed_token_ids`",
            "`min_tokens`",
            "`n` > 1",
            "`logprobs`, `prompt_logprobs`",
        )
    ),
    _works(
        "Requests",
        "structured outputs: JSON, regex, choice, grammar",
        _EQUALS_PLAIN,
        "xgrammar; other backends are untested",
    ),
    _refused(
        "Requests",
        "`min_p`, `logit_bias`",
        _SAMPLING + "test_what_vllm_refuses_with_drafts_is_refused_per_request",
        "request by request, by vLLM",
    ),
    _works(
        "Requests",
        "`seed`, with drafts",
        _SEEDS + "test_neighbours_change_nothing_while_all_have_drafts",
        "the same tokens beside other neighbours and in other modes, as long as k drafts are "
        "verified in every step; for drawn drafts too, which vLLM 0.32 does not promise",
    ),
    _untested(
        "Requests",
        "`seed`, with drafts that vary in number",
        "other tokens, of the same distribution: vLLM draws by the step. So in `wait-free`, in "
        "`two-batch` while others come and go, near `max_model_len`, and when the drafter is late",
    ),
    _undrafted(
        "Requests",
        "`seed`, and the same tokens whatever happens",
        _SEEDS + "test_a_seeded_request_without_drafts_is_answered_as_by_vllm",
        "plain vLLM's tokens, in every mode: for requests that opt out of drafts",
    ),
    _works(
        "Requests",
        "`seed`, with a prompt in pieces",
        _SEEDS + "test_a_seeded_request_without_drafts_is_answered_as_by_vllm",
        "on CPUs vLLM 0.32 alone ends the engine",
    ),
    _undrafted("Requests", "prompt embeddings", _MODELS + "test_prompts_given_as_embeddings"),
    _untested("Requests", "media (images, audio, video)", "meant to run without drafts"),
    _works("Requests", "streamed answers", _SERVER + "test_streaming_clients_at_1_4_and_16"),
    _works(
        "Requests",
        "tool calls, streamed or not",
        _TOOLS + "test_equals_vllm_serve",
        "parser `hermes`, calls forced by `tool_choice`; other parsers are untested",
    ),
    _works(
        "Requests",
        "reasoning parsers, with structured outputs after the reasoning",
        _REASONING + "test_equals_plain_vllm",
        "`deepseek_r1` and `qwen3`; other parsers are untested",
    ),
    _works("Requests", "thinking budget", _REASONING + "test_equals_plain_vllm"),
    _untested("Requests", "beam search"),
)

_PLATFORMS = (
    _works(
        "Platforms",
        "vLLM 0.32.0",
        "tests/plugin/test_compat.py::test_every_hook_is_there",
    ),
    _refused(
        "Platforms",
        "other versions of vLLM",
        "tests/plugin/test_compat.py::test_untried_versions_are_refused_unless_allowed",
        "unless `allow_untested_vllm`; 0.33 is let in and not tested",
    ),
    _works("Platforms", "x86 CPU, eager", _LOSSLESS + "test_all_at_once"),
    _untested("Platforms", "CUDA", "written for it, not run on it"),
    _untested("Platforms", "ROCm, XPU, TPU, ARM, macOS"),
    _refused(
        "Platforms",
        "drafter on a GPU beside a CPU target",
        _CONFIG + "test_refused_options",
    ),
)

ROWS: tuple[Row, ...] = (
    *_MODES_AND_WAYS_IN,
    *_DRAFTS,
    *_DRAFT_MODELS,
    *_TARGETS,
    *_PARALLEL,
    *_ENGINE,
    *_LIFE_CYCLE,
    *_REQUESTS,
    *_PLATFORMS,
)
"""The whole table, areas together."""
