"""Provenance: what is found out about machine and tree, and what is left out where it is not."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import minedraft
from bench_runs import PROVENANCE
from minedraft.bench import provenance
from minedraft.bench.provenance import gather, of_run


def _git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
    subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)


def test_commit_and_changes_of_the_tree_that_was_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "package" / "__init__.py"
    file.parent.mkdir()
    file.write_text("")
    monkeypatch.setattr(minedraft, "__file__", str(file))
    assert gather([]).git_commit is None
    _git(tmp_path, "init", "-q")
    # In somebody's tree, but not of it.
    assert (gather([]).git_commit, gather([]).git_dirty) == (None, None)
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "m")
    found = gather(["a", "b"])
    assert (len(found.git_commit or ""), found.git_dirty) == (40, False)
    assert found.command == ["a", "b"]
    assert found.versions["minedraft"] == minedraft.__version__
    file.write_text("changed")
    assert gather([]).git_dirty is True


def test_programs_that_are_not_there_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = gather([])
    assert (found.git_commit, found.git_dirty, found.devices) == (None, None, [])
    assert found.cpu_count >= 1


def test_gpus_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf 'L40\\nL40\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gather([]).devices == ["L40", "L40"]


def test_the_cpus_model(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    assert provenance._cpu_model(cpuinfo) is None
    cpuinfo.write_text("processor\t: 0\nmodel name\t: A: 1\nmodel name\t: B\n")
    assert provenance._cpu_model(cpuinfo) == "A: 1"


def test_a_runs_own_part() -> None:
    started = datetime(2026, 1, 2, 3, 0, 0, 999, tzinfo=timezone(timedelta(hours=2)))
    found = of_run(
        PROVENANCE, started=started, duration_s=1.23456, versions={"vllm": "9"}, devices=[]
    )
    assert (found.started_utc, found.duration_s) == ("2026-01-02T01:00:00+00:00", 1.235)
    assert found.versions == {"minedraft": "1.0", "vllm": "9"}
    assert found.git_commit == PROVENANCE.git_commit
