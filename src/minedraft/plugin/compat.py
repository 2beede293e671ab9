"""Which vLLM this plugin stands on: versions tried, and every name that it overrides or calls.

Owns the contract and its check; it changes nothing in vLLM. `Scheduler` and the rest are
no public interfaces, so a version that breaks the contract is refused before an engine
starts.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass

import vllm
from vllm.v1.core.sched.scheduler import Scheduler

from minedraft.errors import ConfigError

TESTED_VERSIONS = ("0.32", "0.33")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One attribute of vLLM: a callable with these parameters (at least), or a plain name,
    of the class or set by its constructor."""

    owner: str
    """Module and class, as in ``pkg.module:Class``, or a module, as in ``pkg.module:``."""
    name: str
    parameters: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The hook as a reader writes it."""
        return f"{self.owner.replace(':', '.').rstrip('.')}.{self.name}"

    def problem(self) -> str | None:
        """What is wrong with this hook in the installed vLLM; None if nothing is."""
        module, _, attribute = self.owner.partition(":")
        try:
            owner: object = importlib.import_module(module)
            owner = getattr(owner, attribute) if attribute else owner
        except (ImportError, AttributeError) as error:
            return f"{self.owner}: {error}"
        found = inspect.getattr_static(owner, self.name, None)
        if found is None and self.name not in _names_of_instances(owner):
            return f"{self.label} does not exist"
        if not self.parameters:
            return None
        known = inspect.signature(getattr(owner, self.name)).parameters
        missing = [each for each in self.parameters if each not in known]
        return f"{self.label} has no parameter {', '.join(missing)}" if missing else None


def _names_of_instances(owner: object) -> set[str]:
    """Attributes that a class declares for its instances, or that its constructor touches."""
    constructor = inspect.unwrap(vars(owner).get("__init__", owner))
    code = getattr(constructor, "__code__", None)
    return {*getattr(owner, "__annotations__", {}), *(code.co_names if code else ())}


_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_REQUEST = "vllm.v1.request:Request"
_KV = "vllm.v1.core.kv_cache_manager:KVCacheManager"
_CORE = "vllm.v1.engine.core:EngineCore"
_EXECUTOR = "vllm.v1.executor.multiproc_executor:MultiprocExecutor"
_WORKER = "vllm.v1.worker.gpu_worker:Worker"
_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"

_OMP = "vllm.utils.ompmultiprocessing:OMPProcessManager"

_SCHEDULER_ATTRIBUTES = (
    "current_step",
    "running",
    "waiting",
    "kv_holding_waiting",
    "requests",
    "max_num_running_reqs",
    "num_spec_tokens",
    "dynamic_sd_lookup",
    "prev_step_scheduled_req_ids",
    "structured_output_manager",
)
_REQUEST_ATTRIBUTES = (
    "next_decode_eligible_step",
    "spec_token_ids",
    "num_computed_tokens",
    "num_in_flight_tokens",
    "all_token_ids",
    "mm_features",
    "prompt_embeds",
    "resumable",
    "sampling_params",
    "structured_output_request",
    "num_output_tokens",
    "status",
)

HOOKS = (
    Hook(owner=_OMP, name="__init__", parameters=("config",)),
    Hook(owner=_SCHEDULER, name="schedule", parameters=("throttle_prefills",)),
    Hook(
        owner=_SCHEDULER,
        name="update_from_output",
        parameters=("scheduler_output", "model_runner_output"),
    ),
    Hook(owner=_SCHEDULER, name="update_draft_token_ids", parameters=("draft_token_ids",)),
    Hook(owner=_SCHEDULER, name="finish_requests", parameters=("request_ids", "finished_status")),
    Hook(owner=_SCHEDULER, name="shutdown"),
    Hook(owner=_SCHEDULER, name="pause_state"),
    Hook(
        owner=_REQUEST,
        name="__init__",
        parameters=(
            "request_id",
            "prompt_token_ids",
            "sampling_params",
            "pooling_params",
            "block_hasher",
        ),
    ),
    Hook(owner=_REQUEST, name="append_output_token_ids", parameters=("token_ids",)),
    Hook(owner=_REQUEST, name="num_tokens"),
    Hook(
        owner=_KV,
        name="allocate_slots",
        parameters=(
            "request",
            "num_new_tokens",
            "num_new_computed_tokens",
            "new_computed_blocks",
            "full_sequence_must_fit",
        ),
    ),
    Hook(owner=_KV, name="get_computed_blocks", parameters=("request",)),
    Hook(owner=_KV, name="get_block_ids", parameters=("request_id",)),
    Hook(owner=_KV, name="free", parameters=("request",)),
    Hook(owner=_CORE, name="__init__", parameters=("vllm_config", "executor_class", "log_stats")),
    Hook(owner=_CORE, name="step_with_batch_queue"),
    Hook(owner=_CORE, name="shutdown"),
    Hook(owner=_EXECUTOR, name="execute_model", parameters=("scheduler_output", "non_block")),
    Hook(owner=_EXECUTOR, name="_init_executor"),
    Hook(owner=_EXECUTOR, name="take_draft_token_ids"),
    Hook(owner=_WORKER, name="load_model"),
    Hook(owner="vllm.triton_utils.dispatcher:", name="register_kernels", parameters=("overrides",)),
    Hook(
        owner="vllm.v1.sample.rejection_sampler:RejectionSampler",
        name="forward",
        parameters=("metadata", "draft_probs", "logits", "sampling_metadata"),
    ),
    Hook(owner=_WORKER, name="execute_model", parameters=("scheduler_output",)),
    Hook(owner=_WORKER, name="sample_tokens", parameters=("grammar_output",)),
    Hook(owner=_RUNNER, name="execute_model", parameters=("scheduler_output",)),
    Hook(owner="vllm.config:VllmConfig", name="max_concurrent_batches"),
    Hook(owner="vllm.config:VllmConfig", name="compute_hash"),
    *(Hook(owner=_SCHEDULER, name=name) for name in _SCHEDULER_ATTRIBUTES),
    *(Hook(owner=_REQUEST, name=name) for name in _REQUEST_ATTRIBUTES),
    Hook(owner=_KV, name="new_step_starts"),
    Hook(owner=_KV, name="block_pool"),
    Hook(owner=_CORE, name="request_block_hasher"),
    Hook(owner=_RUNNER, name="requests"),
    Hook(owner=_RUNNER, name="input_batch"),
    Hook(owner=_RUNNER, name="discard_request_mask"),
    Hook(owner=_RUNNER, name="sampler"),
    Hook(owner=_RUNNER, name="rejection_sampler"),
    Hook(
        owner="vllm.v1.sample.sampler:Sampler",
        name="forward",
        parameters=("logits", "sampling_metadata"),
    ),
    Hook(owner="vllm.v1.worker.gpu_input_batch:InputBatch", name="remove_request"),
    Hook(owner="vllm.v1.worker.gpu_input_batch:InputBatch", name="req_ids"),
    Hook(owner="vllm.v1.worker.gpu_input_batch:InputBatch", name="num_reqs"),
    Hook(owner="vllm.v1.worker.gpu_input_batch:InputBatch", name="generators"),
    Hook(owner="vllm.v1.spec_decode.metadata:SpecDecodeMetadata", name="num_draft_tokens"),
    Hook(owner="vllm.v1.spec_decode.metadata:SpecDecodeMetadata", name="draft_token_ids"),
    Hook(owner="vllm.v1.spec_decode.metadata:SpecDecodeMetadata", name="bonus_logits_indices"),
    Hook(owner="vllm.v1.sample.metadata:SamplingMetadata", name="all_greedy"),
    Hook(owner="vllm.v1.core.sched.output:SchedulerOutput", name="make_empty"),
    Hook(
        owner="vllm.v1.structured_output:StructuredOutputManager",
        name="validate_tokens",
        parameters=("request", "spec_tokens"),
    ),
    Hook(owner="vllm.engine.arg_utils:EngineArgs", name="create_engine_config"),
    Hook(owner="vllm.v1.engine.core_client:", name="launch_core_engines"),
    Hook(owner="vllm.v1.engine.coordinator:DPCoordinatorProc", name="run_coordinator"),
    Hook(owner="vllm.engine.arg_utils:EngineArgs", name="_api_process_count"),
    Hook(owner="vllm.engine.arg_utils:EngineArgs", name="_api_process_rank"),
    Hook(owner=_RUNNER, name="execute_model_state"),
    Hook(owner=_RUNNER, name="use_aux_hidden_state_outputs"),
    Hook(owner=_RUNNER, name="_model_forward", parameters=("input_ids", "positions")),
    *(
        Hook(owner="vllm.v1.worker.gpu_model_runner:ExecuteModelState", name=name)
        for name in ("scheduler_output", "hidden_states", "aux_hidden_states")
    ),
    Hook(
        owner="vllm.model_executor.model_loader:",
        name="register_model_loader",
        parameters=("load_format",),
    ),
    Hook(
        owner="vllm.model_executor.model_loader.utils:",
        name="initialize_model",
        parameters=("vllm_config", "model_config"),
    ),
    Hook(
        owner="vllm.v1.worker.gpu_worker:",
        name="init_worker_distributed_environment",
        parameters=("vllm_config", "rank", "distributed_init_method", "local_rank", "backend"),
    ),
    Hook(owner="vllm.model_executor.models.medusa:Medusa", name="compute_logits"),
    Hook(
        owner="vllm.model_executor.models.interfaces:SupportsEagle3",
        name="set_aux_hidden_state_layers",
    ),
)


def hook_problems() -> list[str]:
    """What the installed vLLM lacks of the contract; empty if nothing."""
    problems = [problem for hook in HOOKS if (problem := hook.problem()) is not None]
    # Setting an attribute that the loop does not read would hold nobody back.
    if "next_decode_eligible_step" not in Scheduler.schedule.__code__.co_names:
        problems.append("Scheduler.schedule does not read Request.next_decode_eligible_step")
    return problems


def is_tested_version() -> bool:
    """Whether the installed vLLM is of a release that this plugin was tried with."""
    return ".".join(vllm.__version__.split(".")[:2]) in TESTED_VERSIONS


def check_vllm(*, allow_untested: bool) -> None:
    """Refuse a vLLM that lacks a hook, or an untried one unless `allow_untested`.

    Raises:
        ConfigError: names the version and what is missing.
    """
    if problems := hook_problems():
        raise ConfigError(
            f"minedraft: vLLM {vllm.__version__} does not fit: " + "; ".join(problems)
        )
    if not is_tested_version() and not allow_untested:
        raise ConfigError(
            f"minedraft: vLLM {vllm.__version__} was not tried; allowed: "
            f"{', '.join(TESTED_VERSIONS)} (allow_untested_vllm = true goes on anyway)"
        )
