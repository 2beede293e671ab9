"""The folder of one experiment's results: a file a run, named after the run's identity.

Owns the files' form and how they are written and read; runs nothing and draws nothing.

::

    experiment.json          the plan: name, what the report shows, all runs
    <identity>.json          a result
    <identity>.failed.json   a run that failed, tried again next time
    <identity>.log           what its engine printed
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from minedraft.bench.experiment import Experiment, ReportPlan
from minedraft.bench.message import RunOutcome
from minedraft.bench.provenance import Provenance
from minedraft.bench.spec import RunSpec
from minedraft.errors import ConfigError

FORMAT = 1
PLAN = "experiment.json"
_FAILED = ".failed.json"
_ALLOWED = "a file that 'minedraft bench run' wrote; move it away or delete it"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the folder is to hold; `runs` and `report` are tables, as in the experiment."""

    name: str
    description: str
    report: dict[str, Any]
    runs: list[dict[str, Any]]
    format: int = FORMAT


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run, where it was measured, and what it gave; `run` is the run's table."""

    identity: str
    run: dict[str, Any]
    provenance: Provenance
    outcome: RunOutcome
    format: int = FORMAT


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One run that failed, and why."""

    identity: str
    run: dict[str, Any]
    provenance: Provenance
    error: str
    format: int = FORMAT


_Record = TypeVar("_Record", Result, Failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsFolder:
    """Results by identity.

    Every reading method raises ConfigError that names a file which is damaged, or which no
    benchmark wrote: nothing is left out, and nothing written over, in silence.
    """

    path: Path

    def adopt(self, experiment: Experiment) -> None:
        """Make the folder, if need be, that of `experiment`, and write down the plan.

        Raises:
            ConfigError: it is another experiment's, or cannot be written.
        """
        if (self.path / PLAN).exists() and self.plan().name != experiment.name:
            raise ConfigError.bad_value(
                "results", str(self.path), f"a folder without results of {self.plan().name!r}"
            )
        plan = Plan(
            name=experiment.name,
            description=experiment.description,
            report=experiment.report.to_mapping(),
            runs=[spec.to_mapping() for spec in experiment.runs],
        )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(PLAN, plan)
        except OSError as error:
            raise ConfigError(f"minedraft: cannot write {str(self.path)!r}: {error}") from error

    def plan(self) -> Plan:
        """The plan; ConfigError if there is none."""
        if not (self.path / PLAN).is_file():
            raise ConfigError.bad_value(
                "results", str(self.path), f"a folder with {PLAN}, as 'minedraft bench run' makes"
            )
        plan = _decode(self.path / PLAN, Plan)
        try:
            ReportPlan.from_mapping(plan.report)
            for run in plan.runs:
                RunSpec.from_mapping(run)
        except ConfigError as error:
            raise ConfigError.bad_value("file", str(self.path / PLAN), _ALLOWED) from error
        return plan

    def results(self) -> dict[str, Result]:
        """Every result by identity, in the order of their names."""
        return {each.identity: each for each in self._read("", Result)}

    def failures(self) -> dict[str, Failure]:
        """Every run that failed and has no result, by identity."""
        return {each.identity: each for each in self._read(_FAILED, Failure)}

    def missing(self, runs: Sequence[RunSpec]) -> list[RunSpec]:
        """Those of `runs` that have no result, in their order; failed ones are among them."""
        there = self.results()
        return [spec for spec in runs if spec.identity not in there]

    def write(self, spec: RunSpec, provenance: Provenance, outcome: RunOutcome) -> Path:
        """Keep a result; an earlier failure of the run is forgotten.

        Raises:
            ConfigError: the run has a result already.
        """
        name = f"{spec.identity}.json"
        if (self.path / name).exists():
            raise ConfigError.bad_value("file", str(self.path / name), "a run without a result")
        self._write(
            name,
            Result(
                identity=spec.identity,
                run=spec.to_mapping(),
                provenance=provenance,
                outcome=outcome,
            ),
        )
        (self.path / f"{spec.identity}{_FAILED}").unlink(missing_ok=True)
        return self.path / name

    def write_failure(self, spec: RunSpec, provenance: Provenance, error: str) -> Path:
        """Keep why a run failed, in place of an earlier failure."""
        failure = Failure(
            identity=spec.identity, run=spec.to_mapping(), provenance=provenance, error=error
        )
        return self._write(f"{spec.identity}{_FAILED}", failure)

    def log(self, spec: RunSpec) -> Path:
        """The file for what the run's engine prints."""
        return self.path / f"{spec.identity}.log"

    def _read(self, ending: str, kind: type[_Record]) -> list[_Record]:
        if not self.path.is_dir():
            return []
        names = sorted(path.name for path in self.path.glob("*.json") if path.name != PLAN)
        records: list[_Record] = []
        for name in names:
            if name.endswith(_FAILED) != (ending == _FAILED):
                continue
            record = _decode(self.path / name, kind)
            if not _names_itself(record, name.removesuffix(ending or ".json")):
                raise ConfigError.bad_value("file", str(self.path / name), _ALLOWED)
            records.append(record)
        return records

    def _write(self, name: str, record: msgspec.Struct) -> Path:
        data = msgspec.json.format(msgspec.json.encode(record), indent=1)
        # The final name appears with the whole content or not at all.
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return self.path / name


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _decode(path: Path, kind: type[_Struct]) -> _Struct:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ConfigError(f"minedraft: cannot read {str(path)!r}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"minedraft: file = {str(path)!r} is not allowed ({error}); allowed: {_ALLOWED}"
        ) from error
    if getattr(record, "format", FORMAT) != FORMAT:
        raise ConfigError.bad_value("file", str(path), f"format {FORMAT}")
    return record


def _names_itself(record: Result | Failure, identity: str) -> bool:
    try:
        own = RunSpec.from_mapping(record.run).identity
    except ConfigError:
        return False
    return own == record.identity == identity
