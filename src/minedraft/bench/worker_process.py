"""A Runner that starts a process for every run: a new engine, and nothing left of the last one.

Owns the process, its time limit and its log; what is said to it is `message`'s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from minedraft.bench.message import RunOutcome, decode_outcome, encode_request
from minedraft.bench.results import ResultsFolder
from minedraft.bench.spec import RunSpec
from minedraft.errors import BenchError
from minedraft.openmp import preload_value
from minedraft.termination import exit_on_sigterm

WORKER = (sys.executable, "-m", "minedraft.plugin.bench_worker")
_LOG_LINES = 15
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """Runs `command`, which reads one request on its standard input."""

    limit_s: float
    command: tuple[str, ...] = WORKER

    def run(self, spec: RunSpec, folder: ResultsFolder) -> RunOutcome:
        """What the run gave; BenchError with the end of its log if it failed.

        No process of the run is left, however this ends; if this process is killed, the worker
        itself sees to it.
        """
        log = folder.log(spec)
        with tempfile.TemporaryDirectory(prefix="minedraft-bench-") as place:
            output = Path(place) / "outcome.json"
            with log.open("wb") as file:
                reason = self._call(encode_request(spec, output), file.fileno())
            if reason is not None:
                raise BenchError(f"minedraft: the worker {reason}, log in {log}:\n{_end(log)}")
            try:
                return decode_outcome(output.read_bytes())
            except (OSError, ValueError) as error:
                raise BenchError(
                    f"minedraft: the worker's answer cannot be read ({error}), log in {log}:\n"
                    f"{_end(log)}"
                ) from error

    def _call(self, request: str, log: int) -> str | None:
        """Why the process failed, None if it did not."""
        # A group of its own, so that the engine's processes end with it.
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            with exit_on_sigterm():
                process.communicate(request.encode(), timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            return f"took more than {self.limit_s:g} s"
        finally:
            _end_group(process)
        return f"exited {process.returncode}" if process.returncode else None


def _environment() -> dict[str, str]:
    """This process's, and the library that a worker on a CPU would start itself again for."""
    value = preload_value()
    return dict(os.environ) if value is None else {**os.environ, "LD_PRELOAD": value}


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    # Also after a clean end: what it started may be there still.
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])
