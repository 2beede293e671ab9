"""vLLM's multiprocess executor, spared two messages per step that minedraft does not need.

Owns no worker; everything else is vLLM's.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT

from minedraft.plugin.lifecycle import begin_drafter
from minedraft.plugin.parent_watch import watch_parent


class MineDraftExecutor(MultiprocExecutor):
    """Asks the workers for no drafts and sends them no empty steps.

    Both would queue behind the step that is running, and hold the engine up until its end.
    """

    def _init_executor(self) -> None:
        # A forked engine has not read its config, which begins the watch elsewhere.
        watch_parent()
        # The drafter loads its model while the target's workers load theirs.
        begin_drafter(self.vllm_config)
        super()._init_executor()

    def take_draft_token_ids(self) -> None:
        """Drafts come from the drafter, through the scheduler."""
        return None

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """As vLLM; a step that holds nothing for the workers is answered here."""
        if not _is_empty(scheduler_output):
            return super().execute_model(scheduler_output, non_block)
        if not non_block:
            return EMPTY_MODEL_RUNNER_OUTPUT
        future: Future[Any] = Future()
        future.set_result(EMPTY_MODEL_RUNNER_OUTPUT)
        return future


def _is_empty(output: SchedulerOutput) -> bool:
    news = (
        output.total_num_scheduled_tokens,
        output.finished_req_ids,
        output.free_encoder_mm_hashes,
        output.kv_cache_block_copies,
        output.new_block_ids_to_zero,
        output.kv_connector_metadata,
        output.ec_connector_metadata,
    )
    return not any(news)
