"""`minedraft profile` on a made-up pair: a file that is read back, with times of every cell."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import quick_start
from minedraft.profiles import PassProfile, Profile, read_profile
from minedraft.theory import Acceptance, Load, steady_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

IN_FLIGHT, DRAFTS, CONTEXT, REPEATS = (1, 3), 2, (16, 48), 3
_COMMAND = """
import sys
sys.path.append(sys.argv.pop(1))
import quick_start
quick_start.fork_engines()
from minedraft.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def measured(
    pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Profile, subprocess.CompletedProcess[str]]:
    """The profile of a pair whose drafts are mostly accepted, and what the command said."""
    output = tmp_path_factory.mktemp("profile") / "p.json"
    words = ["profile", str(pairs["high"].target), "--draft-model", str(pairs["high"].draft)]
    words += ["-k", str(DRAFTS), "--in-flight", "3,1", "--context", "16,48"]
    words += ["--repeats", str(REPEATS), "--dtype", "float32", "--output", str(output)]
    words += ["--draft-block-size", "32", "--draft-kv-cache-gib", "0.1"]
    words += ["--block-size", "32", "--kv-cache-memory-bytes", str(2**28)]
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, str(Path(quick_start.__file__).parent), *words],
        text=True,
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return read_profile(output), done


def test_every_cell_was_measured(measured: tuple[Profile, Any]) -> None:
    profile, _ = measured
    steps = {(each.num_requests, each.num_tokens) for each in profile.target.points}
    assert {(b, b * (1 + k)) for b in IN_FLIGHT for k in (0, DRAFTS)} <= steps
    # Prompts: one of each length at least; the three of a cell may come one by one.
    assert {(1, context) for context in CONTEXT} <= steps
    decodes = [each for each in profile.target.points if each.num_tokens <= 3 * (1 + DRAFTS)]
    assert all(each.num_samples >= REPEATS for each in decodes)
    drafts = {(each.num_requests, each.num_tokens) for each in profile.draft.points}
    assert {(b, b * context) for b in IN_FLIGHT for context in CONTEXT} <= drafts
    assert {b for b, n in drafts if b <= n <= b * (1 + 1 / DRAFTS)} == set(IN_FLIGHT)
    for passes in (profile.target, profile.draft):
        assert all(0 < each.low_ms <= each.median_ms <= each.high_ms for each in passes.points)
        assert all(each.context >= CONTEXT[0] for each in passes.points)


def test_fits_rise_and_their_errors_are_told(
    measured: tuple[Profile, subprocess.CompletedProcess[str]],
) -> None:
    profile, done = measured
    times = profile.times(CONTEXT[0])
    for ask in (times.verify_ms, times.draft_pass_ms):
        rising = [ask(b, n) for b, n in ((1, 1), (2, 2), (2, 6), (3, 9), (3, 60))]
        assert all(0 < a <= b for a, b in pairwise(rising))
    assert profile.times(CONTEXT[1]).verify_ms(3, 9) >= times.verify_ms(3, 9)
    for passes in (profile.target, profile.draft):
        _assert_told(passes, done.stdout)
    assert "round 1, cell 1 of 8: 1 in flight, k = 0, context 16" in done.stderr


def _assert_told(passes: PassProfile, printed: str) -> None:
    for each in passes.residuals:
        assert f"{each.fit_error:+.1%}  " in printed
        assert f"{each.linear_error:+.1%}\n" in printed


def test_closed_forms_take_it(measured: tuple[Profile, Any]) -> None:
    profile, _ = measured
    assert profile.overhead_ms > 0
    assert profile.target_dtype == "float32"
    assert profile.provenance.command[:2] == ["minedraft", "profile"]
    assert profile.provenance.duration_s > 0
    load = Load(
        times=profile.times(32),
        acceptance=Acceptance((0.9,)),
        in_flight=2,
        overhead_ms=profile.overhead_ms,
    )
    none, sequential = (steady_of(mode, load, DRAFTS) for mode in ("none", "sequential"))
    assert 0 < none.round_ms < sequential.round_ms
