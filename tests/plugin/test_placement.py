"""Cores of target and drafter, and how many devices a run has, by the arguments of an engine."""

from __future__ import annotations

import os
from typing import Any

import pytest

import minedraft
from minedraft import ConfigError, MineDraftConfig

pytestmark = pytest.mark.vllm

_CORES = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(_CORES) < 2, reason="needs two cores")


@pytest.fixture(autouse=True)
def _keep_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "VLLM_CPU_OMP_THREADS_BIND",
        "MINEDRAFT_TARGET_CORES",
        "MINEDRAFT_USERS_CORES",
    ):
        # Set first, so that what a test leaves there goes too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@needs_two_cores
def test_cores_are_shared_out(pairs: dict[str, Any]) -> None:
    options = _config(pairs, **_options(pairs)).additional_config["minedraft"]
    assert options["draft_device"] == f"cpu:{_CORES[-1]}"
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == ",".join(map(str, _CORES[:-1]))


@needs_two_cores
@pytest.mark.parametrize("named", [False, True])
def test_a_target_alone_gets_the_cores_that_were_asked_for(
    pairs: dict[str, Any], named: bool
) -> None:
    options = _options(pairs) if named else {}
    cores = f"{_CORES[0]},{_CORES[1]}"
    config = _config(pairs, **options, mode="none", target_cores=cores)
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == cores
    assert _count(config) == {"target": 2, "drafter": 0}


def test_cores_that_are_not_there_are_refused_for_a_target_alone(pairs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="target_cores = '4000'"):
        _config(pairs, mode="none", target_cores="4000")


@needs_two_cores
def test_a_target_alone_does_not_keep_the_cores_of_the_engine_before(
    pairs: dict[str, Any],
) -> None:
    assert _count(_config(pairs, **_options(pairs)))["drafter"] == 1
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"]
    _config(pairs, mode="none")
    assert "VLLM_CPU_OMP_THREADS_BIND" not in os.environ


@needs_two_cores
def test_cores_that_the_user_set_outlive_engines(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an engine before wrote there is not taken for the user's, nor the user's for its."""
    users = str(_CORES[0])
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", users)
    for options in (
        _options(pairs),
        _options(pairs),
        {"mode": "none"},
        {"mode": "none", "target_cores": str(_CORES[1])},
        {"mode": "none"},
        _options(pairs, target_cores=str(_CORES[1]), draft_device=f"cpu:{_CORES[0]}"),
        _options(pairs),
        {"mode": "none"},
    ):
        _config(pairs, **options)
        wanted = options.get("target_cores", users)
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == wanted


def test_cores_that_the_user_set_stay_for_a_target_alone(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", str(_CORES[-1]))
    assert _count(_config(pairs, mode="none")) == {"target": 1, "drafter": 0}
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == str(_CORES[-1])


@pytest.mark.parametrize(
    ("binding", "count"), [("0", 1), ("0,1", 2), ("0-3|4-7", 8), ("0|0", 1), ("nobind", None)]
)
def test_devices_of_a_target_are_the_cores_its_threads_are_bound_to(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch, binding: str, count: int | None
) -> None:
    tensor_parallel_size = binding.count("|") + 1
    config = _config(pairs, mode="none", engine={"tensor_parallel_size": tensor_parallel_size})
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", binding)
    assert _count(config)["target"] == (len(_CORES) if count is None else count)


@needs_two_cores
def test_a_core_that_vllm_keeps_free_is_no_device_of_the_target(pairs: dict[str, Any]) -> None:
    # By default vLLM leaves a core of each worker to its scheduler (and of two threads of one
    # core takes one).
    assert 1 <= _count(_config(pairs, mode="none"))["target"] <= len(_CORES) - 1


@pytest.mark.parametrize(
    ("cores", "workers", "expected"),
    [
        ((0,), 1, "0"),
        ((0, 2, 3), 1, "0,2,3"),
        ((0, 1, 2, 3), 2, "0,1|2,3"),
        ((0, 1, 2), 2, "0|1,2"),
        ((5,), 2, "5|5"),
    ],
)
def test_every_worker_of_the_target_gets_cores(
    cores: tuple[int, ...], workers: int, expected: str
) -> None:
    from minedraft.plugin.placement import _binding

    assert _binding(MineDraftConfig(mode="none"), cores, workers) == expected


def test_groups_of_cores_that_the_user_made_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    from minedraft.plugin.placement import _binding

    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0,2|1,3")
    config = MineDraftConfig(mode="none")
    assert _binding(config, (0, 1, 2, 3), 2) == "0,2|1,3"
    assert _binding(config, (0, 1, 2, 3), 4) == "0|1|2|3"


@pytest.mark.parametrize(
    ("num_cores", "target", "num_drafters", "expected"),
    [
        (8, None, 1, (7,)),
        (8, None, 4, (4, 5, 6, 7)),
        (8, None, 6, (4, 5, 6, 7)),
        (2, None, 2, (1,)),
        (8, (0, 1), 6, (2, 3, 4, 5, 6, 7)),
        (2, (0, 1), 1, (0, 1)),
    ],
)
def test_every_drafter_gets_a_core_as_far_as_they_go(
    num_cores: int, target: tuple[int, ...] | None, num_drafters: int, expected: tuple[int, ...]
) -> None:
    from minedraft.plugin.placement import _free_cores

    assert _free_cores(list(range(num_cores)), target, num_drafters) == expected


def _beside_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vLLM say that it was built for GPUs, of which there are two."""
    from vllm.platforms import current_platform

    monkeypatch.setattr(type(current_platform), "is_cpu", lambda _: False)
    monkeypatch.setattr(type(current_platform), "device_count", lambda *_: 2, raising=False)


def _lookup(**more: Any) -> MineDraftConfig:
    return MineDraftConfig.from_mapping({"draft_method": "ngram", **more})


def test_beside_gpus_a_drafter_without_a_model_takes_none(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from minedraft.plugin.lifecycle import _environment
    from minedraft.plugin.placement import count_devices, refuse_device, resolve_cores

    vllm_config = _config(pairs, mode="none")
    args = _engine_args(pairs)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    _beside_gpus(monkeypatch)
    config = _lookup()
    refuse_device(config, 2, 1)
    assert resolve_cores(config, args) == config
    assert count_devices(vllm_config, config.running_drafter) == {"target": 1, "drafter": 0}
    assert config.drafter is not None
    assert _environment(config.drafter)["CUDA_VISIBLE_DEVICES"] == ""
    model = MineDraftConfig.from_mapping({"draft_model": "D", "draft_device": "cuda:1"})
    assert count_devices(vllm_config, model.running_drafter) == {"target": 1, "drafter": 1}
    assert model.drafter is not None
    assert _environment(model.drafter)["CUDA_VISIBLE_DEVICES"] == "1"
    with pytest.raises(ConfigError, match="runs no model on a CPU"):
        refuse_device(MineDraftConfig.from_mapping({"draft_model": "D"}), 1, 1)


def test_beside_gpus_cores_of_the_drafter_are_checked(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from minedraft.plugin.placement import resolve_cores

    _beside_gpus(monkeypatch)
    with pytest.raises(ConfigError, match="draft_device = 'cpu:999'"):
        resolve_cores(_lookup(draft_device="cpu:999"), _engine_args(pairs))


def _options(pairs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"draft_model": str(pairs["high"].draft), **more}


def _config(pairs: dict[str, Any], engine: dict[str, Any] | None = None, **options: Any) -> Any:
    args = _engine_args(pairs, **(engine or {}), **minedraft.engine_args(**options))
    return args.create_engine_config()


def _engine_args(pairs: dict[str, Any], **more: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=str(pairs["high"].target), dtype="float32", max_model_len=256, block_size=32, **more
    )


def _count(config: Any) -> dict[str, int]:
    from minedraft.plugin.engine_config import active_options
    from minedraft.plugin.placement import count_devices

    return count_devices(config, active_options(config).running_drafter)
