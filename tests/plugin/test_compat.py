"""The contract with vLLM holds on the installed version, and its check can fail."""

from __future__ import annotations

import inspect

import pytest

from minedraft import ConfigError

pytestmark = pytest.mark.vllm


def test_every_hook_is_there() -> None:
    from minedraft.plugin.compat import hook_problems, is_tested_version

    assert hook_problems() == []
    assert is_tested_version()


def test_what_is_overridden_is_in_the_contract() -> None:
    """Public methods of vLLM's classes that ours override must be hooks."""
    from minedraft.plugin.compat import HOOKS
    from minedraft.plugin.executor import MineDraftExecutor
    from minedraft.plugin.scheduler import MineDraftScheduler
    from minedraft.plugin.worker import MineDraftWorker

    hooks = {hook.name for hook in HOOKS}
    for ours in (MineDraftScheduler, MineDraftExecutor, MineDraftWorker):
        base = ours.__bases__[0]
        for name, _ in inspect.getmembers(ours, inspect.isfunction):
            overridden = name in vars(ours) and hasattr(base, name) and not name.startswith("__")
            assert not overridden or name in hooks, f"{ours.__name__}.{name} is not in HOOKS"


@pytest.mark.parametrize(
    ("owner", "name", "parameters", "says"),
    [
        ("vllm.v1.core.sched.scheduler:Scheduler", "no_such_name", (), "does not exist"),
        ("vllm.v1.core.sched.scheduler:Scheduler", "schedule", ("nonsense",), "no parameter"),
        ("vllm.v1.core.sched.scheduler:NoClass", "schedule", (), "NoClass"),
        ("vllm.no_such_module:X", "schedule", (), "no_such_module"),
    ],
)
def test_a_missing_hook_is_named(
    owner: str, name: str, parameters: tuple[str, ...], says: str
) -> None:
    from minedraft.plugin.compat import Hook

    problem = Hook(owner=owner, name=name, parameters=parameters).problem()
    assert problem is not None
    assert says in problem


def test_untried_versions_are_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm

    from minedraft.plugin.compat import check_vllm

    monkeypatch.setattr(vllm, "__version__", "0.99.0")
    with pytest.raises(ConfigError, match=r"0\.99\.0 was not tried"):
        check_vllm(allow_untested=False)
    check_vllm(allow_untested=True)
