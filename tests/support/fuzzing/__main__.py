"""The command behind scripts/fuzz.

Owns its flags; the work is `campaign`'s.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fuzzing.campaign import campaign
from fuzzing.drafts import METHODS
from fuzzing.generate import SETTINGS, any_engine, generate, method_engine
from fuzzing.lab import Lab, open_lab
from fuzzing.plan import FAULTS, RunPlan

_RETRIES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the flags ask for; 1 if anything is wrong with any run."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.drafter is not None and args.toy:
        parser.error("--drafter needs a model, which --toy has not")
    logging.disable(logging.ERROR)
    say = partial(print, flush=True)
    with open_lab(args.results, toy=args.toy) as lab:
        if args.replay is not None:
            return _replay(args.replay, lab, args.repeat)
        plans = [_plan(seed, args) for seed in range(args.seed, args.seed + args.count)]
        retries = 1 if args.toy else _RETRIES
        tally = campaign(plans, lab, args.results, say, retries)
    say(str(tally))
    return int(bool(tally.failed))


def _plan(seed: int, args: argparse.Namespace) -> RunPlan:
    engine = SETTINGS[args.engine] if args.engine is not None else None
    if args.drafter is not None:
        engine = method_engine(seed, args.drafter, engine)
    if args.toy and engine is None:
        engine = any_engine(seed)
    return generate(seed, engine, faults=not args.no_faults)


def _replay(paths: Sequence[Path], lab: Lab, times: int) -> int:
    failed = 0
    for path in paths:
        plan = RunPlan.from_json(path.read_bytes())
        for _ in range(times):
            verdict = lab.judge(plan)
            failed += bool(verdict.problems)
            for line in (*verdict.problems, dict(verdict.result.figures)):
                print(f"{path.name}: {line}", flush=True)
    print(f"{failed} of {len(paths) * times} runs failed", flush=True)
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz minedraft.")
    parser.add_argument("count", type=int, nargs="?", default=100, help="number of runs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run")
    parser.add_argument("--replay", type=Path, nargs="+", help="run these plans instead")
    parser.add_argument("--repeat", type=int, default=3, help="how often to replay each")
    parser.add_argument("--toy", action="store_true", help="without a model: seconds, not hours")
    faults = " and ".join(f"'{fault}'" for fault in sorted(FAULTS))
    parser.add_argument("--no-faults", action="store_true", help=f"leave out {faults}")
    parser.add_argument(
        "--engine", type=int, choices=range(len(SETTINGS)), help="one kind of engine only"
    )
    parser.add_argument(
        "--drafter", choices=METHODS, help="instead of a draft model; not with --toy"
    )
    parser.add_argument("--results", type=Path, default=Path("results/fuzz"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
