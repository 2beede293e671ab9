"""What reaches vLLM's config by each way in, and what is refused before anything starts."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import minedraft
from minedraft import ConfigError

pytestmark = pytest.mark.vllm


@pytest.fixture(autouse=True)
def _keep_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_USE_V2_MODEL_RUNNER"):
        monkeypatch.delenv(name, raising=False)


def _args(pairs: dict[str, Any], **more: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=str(pairs["high"].target), dtype="float32", max_model_len=256, block_size=32, **more
    )


def _options(pairs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"draft_model": str(pairs["high"].draft), **more}


def test_the_plugin_fills_in_the_rest(pairs: dict[str, Any]) -> None:
    options = _options(pairs, num_speculative_tokens=3)
    config = _args(pairs, additional_config={"minedraft": options}).create_engine_config()
    assert config.num_speculative_tokens == 3
    assert config.scheduler_config.scheduler_cls.endswith("MineDraftScheduler")
    assert config.parallel_config.worker_cls.endswith("MineDraftWorker")
    assert not config.scheduler_config.async_scheduling
    assert config.max_concurrent_batches == 2
    assert config.max_in_flight_tokens == 2 * config.scheduler_config.max_num_batched_tokens


def test_engine_args_give_the_same(pairs: dict[str, Any]) -> None:
    options = _options(pairs, num_speculative_tokens=3)
    plain = _args(pairs, additional_config={"minedraft": options}).create_engine_config()
    python = _args(pairs, **minedraft.engine_args(**options)).create_engine_config()
    assert python.additional_config == plain.additional_config
    assert type(python) is type(plain)


@pytest.mark.parametrize(("mode", "queued"), [("none", 1), ("sequential", 1), ("two-batch", 2)])
def test_queued_steps(mode: str, queued: int, pairs: dict[str, Any]) -> None:
    options = {} if mode == "none" else _options(pairs)
    args = _args(pairs, additional_config={"minedraft": {**options, "mode": mode}})
    config = args.create_engine_config()
    assert config.max_concurrent_batches == queued
    assert (config.speculative_config is None) == (mode == "none")


def test_the_config_survives_pickle_and_copy_without_the_process(pairs: dict[str, Any]) -> None:
    args = _args(pairs, additional_config={"minedraft": _options(pairs)})
    config = args.create_engine_config()
    config.starting_drafter = lambda: None  # not picklable, as a process is not
    again = pickle.loads(pickle.dumps(config))
    assert again.max_concurrent_batches == 2
    assert again.starting_drafter is None
    assert copy.copy(config).starting_drafter is None


def test_other_engines_are_untouched(pairs: dict[str, Any]) -> None:
    from vllm.config import VllmConfig

    config = _args(pairs).create_engine_config()
    assert type(config) is VllmConfig
    assert config.max_concurrent_batches == 1


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size = 2"),
        (
            {"data_parallel_size": 2, "data_parallel_hybrid_lb": True},
            "data_parallel_size = 2",
        ),
        ({"data_parallel_size": 2, "data_parallel_rank": 1}, "data_parallel_size = 2"),
        ({"data_parallel_size": 2, "nnodes": 2}, "data_parallel_size = 2"),
        ({"data_parallel_size": 2, "data_parallel_backend": "ray"}, "data_parallel_size = 2"),
        ({"distributed_executor_backend": "ray"}, "distributed_executor_backend = 'ray'"),
        ({"scheduler_cls": "a.B"}, "scheduler_cls = 'a.B'"),
        ({"worker_cls": "a.B"}, "worker_cls = 'a.B'"),
        ({"async_scheduling": True}, "async_scheduling = True"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
            "speculative_config",
        ),
    ],
)
def test_refused_arguments(engine: dict[str, Any], says: str, pairs: dict[str, Any]) -> None:
    args = _args(pairs, additional_config={"minedraft": _options(pairs)}, **engine)
    with pytest.raises(ConfigError, match=says):
        args.create_engine_config()


VIRTUAL = {"target": {"fixed_ms": 1.0}, "draft": {"fixed_ms": 1.0}, "clock": "virtual"}


def test_a_virtual_clock_needs_the_engine_in_the_callers_process(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = _args(pairs, additional_config={"minedraft": _options(pairs, emulate=VIRTUAL)})
    with pytest.raises(ConfigError, match=r"emulate\.clock = 'virtual'.*MULTIPROCESSING=0"):
        args.create_engine_config()
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    config = args.create_engine_config()
    assert config.max_concurrent_batches == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"draft_device": "cuda:1"}, "draft_device = 'cuda:1'"),
        ({"draft_device": "cpu:4000"}, "draft_device = 'cpu:4000'"),
        ({"target_cores": "4000"}, "target_cores = '4000'"),
        ({"trace": "/tmp"}, "trace = '/tmp' is not allowed; allowed: a file"),
        ({"trace": "a\0b"}, "trace = .* without NUL"),
        ({"draft_block_size": 48}, "draft_block_size = 48 .* a multiple of 32 on a CPU"),
        ({"mode": "fast"}, "mode = 'fast'"),
        ({"num_speculative_token": 3}, "did you mean 'num_speculative_tokens'"),
        ({"num_speculative_tokens": "3"}, "num_speculative_tokens = '3'"),
    ],
)
def test_refused_options(options: dict[str, Any], says: str, pairs: dict[str, Any]) -> None:
    args = _args(pairs, additional_config={"minedraft": _options(pairs, **options)})
    with pytest.raises(ConfigError, match=says):
        args.create_engine_config()


def test_options_that_are_no_table(pairs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="table of options"):
        _args(pairs, additional_config={"minedraft": [1]}).create_engine_config()


def test_model_runner_v2_is_refused(pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    args = _args(pairs, additional_config={"minedraft": _options(pairs)})
    with pytest.raises(ConfigError, match="VLLM_USE_V2_MODEL_RUNNER"):
        args.create_engine_config()


def test_scheduler_without_options_is_refused(pairs: dict[str, Any]) -> None:
    scheduler = minedraft.engine_args(mode="none")["scheduler_cls"]
    with pytest.raises(ConfigError, match="additional_config"):
        _args(pairs, scheduler_cls=scheduler).create_engine_config()


def test_an_engine_that_the_plugin_did_not_configure_is_refused(pairs: dict[str, Any]) -> None:
    from minedraft.plugin.engine_config import active_options

    with pytest.raises(ConfigError, match="without the plugin"):
        active_options(_args(pairs).create_engine_config())


def test_register_twice_wraps_once() -> None:
    from vllm.engine.arg_utils import EngineArgs

    from minedraft.plugin import register

    register()
    first = EngineArgs.create_engine_config
    register()
    assert EngineArgs.create_engine_config is first


@pytest.mark.parametrize(
    ("target", "draft", "flags", "says"),
    [
        ("high", "high", (), "in mode two-batch would start"),
        ("/none/such", "high", (), "/none/such"),
        ("high", "a/b/c", (), "draft_model = 'a/b/c'"),
        ("high", "/none/such", (), "draft_model = '/none/such'"),
        ("high", "high", ("--no-such-flag",), "--no-such-flag"),
        ("high", "high", ("--pipeline-parallel-size", "2"), "pipeline_parallel_size = 2"),
    ],
)
def test_doctor_says_what_would_be_refused(
    pairs: dict[str, Any], target: str, draft: str, flags: tuple[str, ...], says: str
) -> None:
    from minedraft.plugin.diagnosis import diagnose

    def name(of: str, role: str) -> str:
        return str(getattr(pairs[of], role)) if of in pairs else of

    config = minedraft.MineDraftConfig.from_mapping({"draft_model": name(draft, "draft")})
    flags = ("--max-model-len", "256", "--block-size", "32", *flags)
    last = diagnose(name(target, "target"), config, flags)[-1]
    assert says in last.text
    assert last.is_problem == ("would start" not in says)


def test_the_device_is_quoted_as_given(pairs: dict[str, Any]) -> None:
    options = _options(pairs, draft_device="cpu:97")
    with pytest.raises(ConfigError, match="draft_device = 'cpu:97'"):
        _args(pairs, additional_config={"minedraft": options}).create_engine_config()


@pytest.mark.parametrize("eager", [True, False])
def test_compilation_on_a_cpu_is_warned_of(
    pairs: dict[str, Any], eager: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"minedraft": _options(pairs)}
    _args(pairs, additional_config=options, enforce_eager=eager).create_engine_config()
    assert ("--enforce-eager avoids it" in caplog.text) != eager


def test_replicas_share_cores_and_name_their_traces(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from minedraft.plugin.engine_config import replica_options

    cores = sorted(os.sched_getaffinity(0))
    options = _options(pairs, trace=str(tmp_path / "t.jsonl"), draft_device=f"cpu:{cores[-1]}")
    args = _args(pairs, additional_config={"minedraft": options}, data_parallel_size=2)
    config = args.create_engine_config()
    assert len(os.environ["VLLM_CPU_OMP_THREADS_BIND"].split("|")) == 2
    names = []
    for rank in range(2):
        engine = pickle.loads(pickle.dumps(config))
        engine.parallel_config.data_parallel_index = rank
        engine.parallel_config.reconfigure_for_independent_dp_rank()
        found = replica_options(engine)
        assert str(found.drafter.device) == f"cpu:{cores[-1]}"
        names.append(Path(found.trace).name)
    assert names == ["t.jsonl", "t.1.jsonl"]
