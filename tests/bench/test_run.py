"""Running an experiment: order, progress, failures and interrupts, with a fake runner and clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench_runs import EMULATE, PROVENANCE, fill, make_run
from minedraft.bench.message import RunOutcome
from minedraft.bench.results import ResultsFolder
from minedraft.bench.run import Tally, check_models, format_duration, in_order, run_experiment
from minedraft.bench.spec import RunSpec
from minedraft.bench.worker_process import WorkerProcess
from minedraft.errors import BenchError, ConfigError


@dataclass
class FakeClock:
    """Stands still but for what runs take."""

    time_s: float = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=self.time_s)

    def monotonic_s(self) -> float:
        return self.time_s


@dataclass
class FakeRunner:
    """Takes a time for each mode, and calls `before` with each run."""

    clock: FakeClock
    seconds: dict[str, float] = field(default_factory=dict)
    before: Callable[[RunSpec], None] = lambda spec: None
    ran: list[RunSpec] = field(default_factory=list)

    def run(self, spec: RunSpec, folder: ResultsFolder) -> RunOutcome:
        self.clock.time_s += self.seconds.get(spec.mode, 1.0)
        self.ran.append(spec)
        self.before(spec)
        return RunOutcome(figures={"a": 1.0}, versions={"vllm": "9"}, devices=["a GPU"])


def _go(runs: list[RunSpec], folder: ResultsFolder, runner: FakeRunner) -> tuple[Tally, list[str]]:
    lines: list[str] = []
    tally = run_experiment(runs, folder, runner, PROVENANCE, clock=runner.clock, say=lines.append)
    return tally, lines


def test_modes_alternate_and_repeats_are_complete() -> None:
    runs = [
        make_run(mode, num_speculative_tokens=k, max_num_seqs=n, repeat=repeat)
        for mode in ("two-batch", "none")
        for n in (8, 16)
        for k in ((2, 3) if mode == "two-batch" else (4,))
        for repeat in (1, 0)
    ]
    order = [
        (run.repeat, run.max_num_seqs, run.mode, run.value("num_speculative_tokens"))
        for run in in_order(runs)
    ]
    one = [
        (8, "two-batch", 2),
        (8, "two-batch", 3),
        (8, "none", None),
        (16, "two-batch", 2),
        (16, "two-batch", 3),
        (16, "none", None),
    ]
    assert order == [(repeat, *each) for repeat in (0, 1) for each in one]


def test_draft_times_do_not_part_modes_from_plain_decoding() -> None:
    slow = {**EMULATE, "draft": {"fixed_ms": 20.0}}
    runs = [
        make_run("pearl", emulate=EMULATE),
        make_run("pearl", max_num_seqs=2),
        make_run("pearl", emulate=slow),
        make_run("none", emulate=slow),
    ]
    assert in_order(runs) == [runs[0], runs[2], runs[3], runs[1]]


def test_progress_and_what_is_left(tmp_path: Path) -> None:
    runs = [make_run(mode, repeat=repeat) for repeat in (0, 1) for mode in ("none", "pearl")]
    clock = FakeClock()
    runner = FakeRunner(clock, {"none": 60.0, "pearl": 240.0})
    tally, lines = _go(runs, ResultsFolder(path=tmp_path), runner)
    assert tally == Tally(done=4, failed=0, kept=0)
    assert lines == [
        "[1/4] none, 8 in flight, repeat 1",
        "  done in 60 s",
        "[2/4] pearl, k = 4, 8 in flight, repeat 1, about 3 min left",
        "  done in 240 s",
        "[3/4] none, 8 in flight, repeat 2, about 5 min left",
        "  done in 60 s",
        "[4/4] pearl, k = 4, 8 in flight, repeat 2, about 4 min left",
        "  done in 240 s",
    ]
    last = ResultsFolder(path=tmp_path).results()[runs[-1].identity].provenance
    assert (last.started_utc, last.duration_s) == ("2026-01-02T00:06:00+00:00", 240.0)
    assert last.versions == {"minedraft": "1.0", "vllm": "9"}
    assert last.devices == ["a GPU"]


def test_what_is_there_is_kept_and_sets_the_pace(tmp_path: Path) -> None:
    runs = [make_run(repeat=repeat) for repeat in range(2)]
    folder = fill(tmp_path, [(runs[0], {"a": 7.0})])
    runner = FakeRunner(FakeClock())
    tally, lines = _go(runs, folder, runner)
    assert tally == Tally(done=1, failed=0, kept=1)
    assert runner.ran == [runs[1]]
    assert lines[:2] == [
        "1 of 2 runs have a result already",
        "[2/2] two-batch, k = 4, 8 in flight, repeat 2, about 10 s left",
    ]
    assert folder.results()[runs[0].identity].outcome.figures == {"a": 7.0}


def test_a_failure_is_recorded_and_tried_again(tmp_path: Path) -> None:
    def fail(spec: RunSpec) -> None:
        if spec.mode == "none":
            raise BenchError("minedraft: it broke\nlong log")

    runs, folder = [make_run("none"), make_run("pearl")], ResultsFolder(path=tmp_path)
    tally, lines = _go(runs, folder, FakeRunner(FakeClock(), before=fail))
    assert tally == Tally(done=1, failed=1, kept=0)
    [failure] = folder.failures().values()
    assert (failure.identity, failure.error) == (
        runs[0].identity,
        "minedraft: it broke\nlong log",
    )
    path = tmp_path / f"{runs[0].identity}.failed.json"
    assert lines[1] == f"  failed after 1 s, see {path}: minedraft: it broke"
    tally, _ = _go(runs, folder, FakeRunner(FakeClock()))
    assert tally == Tally(done=1, failed=0, kept=1)
    assert folder.failures() == {}


def test_an_interrupt_leaves_finished_results(tmp_path: Path) -> None:
    def interrupt(spec: RunSpec) -> None:
        if spec.repeat == 1:
            raise KeyboardInterrupt

    runs, folder = [make_run(repeat=repeat) for repeat in range(3)], ResultsFolder(path=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        _go(runs, folder, FakeRunner(FakeClock(), before=interrupt))
    assert [path.name for path in tmp_path.iterdir()] == [f"{runs[0].identity}.json"]
    assert folder.missing(runs) == runs[1:]


def test_nothing_starts_beside_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    runner = FakeRunner(FakeClock())
    with pytest.raises(ConfigError, match=r"x\.json"):
        _go([make_run()], ResultsFolder(path=tmp_path), runner)
    assert runner.ran == []


def test_a_models_folder_must_exist(tmp_path: Path) -> None:
    check_models([make_run(), make_run("none", target=str(tmp_path))])
    with pytest.raises(ConfigError, match=r"draft = '\./none' is not allowed"):
        check_models([make_run(draft="./none")])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5340, "89 min"), (5400, "1 h 30 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def _worker(code: str) -> WorkerProcess:
    return WorkerProcess(limit_s=60.0, command=(sys.executable, "-c", code))


def test_a_worker_reads_the_run_and_answers_in_a_file(tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "run = json.load(sys.stdin)\n"
        "print('seed', run['seed'])\n"
        "answer = {'figures': {'repeat': run['repeat']}, 'tokens_sha256': run['mode']}\n"
        "open(run['output'], 'w').write(json.dumps(answer))\n"
    )
    run, folder = make_run(repeat=2, seed=5), ResultsFolder(path=tmp_path)
    outcome = _worker(code).run(run, folder)
    assert outcome == RunOutcome(figures={"repeat": 2.0}, tokens_sha256="two-batch")
    assert (tmp_path / f"{run.identity}.log").read_text() == "seed 5\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('why'); raise SystemExit(3)", "the worker exited 3, log in"),
        ("print('why')", "the worker's answer cannot be read"),
        (
            "import json, sys; print('why'); open(json.load(sys.stdin)['output'], 'w').write('{')",
            "the worker's answer cannot be read",
        ),
    ],
)
def test_a_worker_that_fails_shows_the_end_of_its_log(
    tmp_path: Path, code: str, message: str
) -> None:
    with pytest.raises(BenchError, match=message) as error:
        _worker(code).run(make_run(), ResultsFolder(path=tmp_path))
    assert str(error.value).endswith("why")


def test_no_process_outlives_its_limit(tmp_path: Path) -> None:
    command = ("sh", "-c", "sleep 60 & echo [$$, $!]; sleep 60")
    run = make_run()
    with pytest.raises(BenchError, match="took more than 3 s"):
        WorkerProcess(limit_s=3.0, command=command).run(run, ResultsFolder(path=tmp_path))
    for process in json.loads((tmp_path / f"{run.identity}.log").read_text()):
        assert _ends(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_command(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import signal\n"
        "from pathlib import Path\n"
        "from bench_runs import make_run\n"
        "from minedraft.bench.results import ResultsFolder\n"
        "from minedraft.bench.worker_process import WorkerProcess\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "command = ('sh', '-c', 'sleep 60 & echo [$$, $!]; sleep 60')\n"
        f"folder = ResultsFolder(path=Path({str(tmp_path)!r}))\n"
        "WorkerProcess(limit_s=60.0, command=command).run(make_run(), folder)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)
    log = tmp_path / f"{make_run().identity}.log"
    deadline = time.monotonic() + 30.0
    while not (log.exists() and log.read_text().endswith("]\n")) and time.monotonic() < deadline:
        time.sleep(0.05)
    command.send_signal(number)
    assert command.wait(20.0) != 0
    for process in json.loads(log.read_text()):
        assert _ends(process)


def _ends(process: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
            os.kill(process, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":  # ended; whoever adopted it has not asked yet
            return True
        time.sleep(0.05)
    return False
