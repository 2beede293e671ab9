"""Many plans, one after the other: what failed is shrunk and left in a file.

Owns order, files and figures; plans are judged by a lab.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing.lab import Lab, Verdict
from fuzzing.plan import RunPlan
from fuzzing.shrink import shrink

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Tally:
    """Figures of a campaign."""

    runs: int = 0
    failed: list[int] = field(default_factory=list)
    """Seeds."""
    counts: Counter[str] = field(default_factory=Counter)
    """What the runs were made of, and the kinds of problems."""
    elapsed_s: float = 0.0

    def add(self, verdict: Verdict) -> None:
        """Count one run."""
        self.runs += 1
        self.counts.update(verdict.result.figures)
        self.counts["requests"] += len(verdict.result.outputs)
        self.counts["aborted"] += len(verdict.result.aborted)
        self.counts.update(problem.kind for problem in verdict.problems)

    def __str__(self) -> str:
        kinds = ("difference", "lost request", "leak", "lost drafter", "crash")
        problems = ", ".join(f"{self.counts[kind]} x {kind}" for kind in kinds)
        rest = sorted(self.counts.keys() - set(kinds))
        counts = ", ".join(f"{self.counts[name]} {name}" for name in rest)
        return (
            f"{self.runs} runs in {self.elapsed_s:.0f} s, {len(self.failed)} failed: {problems}\n"
            f"{counts}" + (f"\nseeds that failed: {self.failed}" if self.failed else "")
        )


def campaign(plans: Iterable[RunPlan], lab: Lab, results: Path, say: Say, retries: int) -> Tally:
    """Judge every plan, those on equal engines together.

    `retries` is how often a smaller plan is tried before it counts as sound: engines with
    processes of their own do not take the same course every time.
    """
    begin, tally = time.monotonic(), Tally()
    for plan in sorted(plans, key=lambda plan: (repr(plan.engine), plan.seed)):
        verdict = lab.judge(plan)
        tally.add(verdict)
        if verdict.problems:
            tally.failed.append(plan.seed)
            say(f"seed {plan.seed} on {plan.engine}:")
            _report(plan, verdict, lab, results, say, retries)
        tally.elapsed_s = time.monotonic() - begin
        if tally.runs % 50 == 0:
            say(f"... {tally}")
    return tally


def _report(
    plan: RunPlan, verdict: Verdict, lab: Lab, results: Path, say: Say, retries: int
) -> None:
    for problem in verdict.problems:
        say(f"  {problem}")
    _write(plan, results / f"seed-{plan.seed}-whole.json")
    kinds = {problem.kind for problem in verdict.problems}

    def fails(candidate: RunPlan) -> bool:
        found = (lab.judge(candidate).problems for _ in range(retries))
        return any(kinds & {problem.kind for problem in problems} for problems in found)

    if not fails(plan):
        say(f"  it did not fail again in {retries} tries: the plan is left whole")
        return
    small = shrink(plan, fails, most_tries=150, keep_engine=True)
    path = results / f"seed-{plan.seed}.json"
    _write(small, path)
    say(f"  shrunk to {len(small.requests)} requests: {path}")
    for problem in lab.judge(small).problems:
        say(f"  {problem}")


def _write(plan: RunPlan, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plan.to_json() + b"\n")
