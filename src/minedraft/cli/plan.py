"""The ``minedraft plan`` command: which mode, draft length and placement a pair and a load want.

Owns its options and its files; the plan is `minedraft.planner`'s.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from minedraft.bench.metrics import Slo
from minedraft.bench.paper_settings import DATASET_OFFSETS
from minedraft.cli.files import check_distinct, check_writable, writing
from minedraft.errors import ConfigError
from minedraft.hardware import GPUS, Model, Pair, Placement, check_num_gpus
from minedraft.planner import (
    GOALS,
    DeviceSource,
    Plan,
    ProfileSource,
    Question,
    Row,
    Source,
    draw_map,
    find_gpu,
    find_model,
    known_acceptance,
    make_map,
    make_plan,
    text_of,
)
from minedraft.profiles import ROLES, read_profile
from minedraft.theory import Acceptance
from minedraft.validation import check_int

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``plan`` command; its namespace carries ``run`` as the function to call."""
    parser = subparsers.add_parser(
        "plan",
        help="recommend mode, draft length and placement for a pair and a load",
        description="The best mode by closed forms, and all modes beside it. No model is run.",
    )
    _add_pair(parser)
    _add_load(parser)
    parser.add_argument("--max-k", type=int, default=8, metavar="K", help="default: %(default)s")
    parser.add_argument(
        "--goal", choices=GOALS, default="throughput", help="of tokens/s; default: %(default)s"
    )
    parser.add_argument("--map", type=Path, metavar="F.png", help="winners over t/V and in flight")
    parser.add_argument("--json", type=Path, metavar="F.json", help="all figures")
    parser.set_defaults(run=run)


def _add_pair(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pair")
    model = "a known model, or a folder with its config.json; default with --profile: its own"
    group.add_argument("--target", metavar="M", help=model)
    group.add_argument("--draft", metavar="M", help="the same of the draft model")
    times = group.add_mutually_exclusive_group(required=True)
    times.add_argument("--device", metavar="NAME", help=f"one of {', '.join(GPUS)}")
    times.add_argument("--profile", metavar="P.json", help="what minedraft profile measured")
    devices = "tensor parallel; default: 1, or the profile's"
    group.add_argument("--num-target-devices", type=int, metavar="N", help=devices)
    group.add_argument("--num-draft-devices", type=int, metavar="N", help="the same of the drafter")
    group.add_argument(
        "--acceptance",
        metavar="A,B,...",
        help="per position, the last one for all that follow; default: what is assumed for the "
        "paper's pairs",
    )
    group.add_argument(
        "--dataset", choices=DATASET_OFFSETS, help="of the assumed acceptance; default: spec-bench"
    )
    group.add_argument(
        "--overhead-ms",
        type=float,
        metavar="MS",
        help="of each step of the target; default: 0, or the profile's",
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load")
    group.add_argument("--in-flight", type=int, required=True, metavar="N", help="requests")
    group.add_argument("--prompt-tokens", type=float, required=True, metavar="N", help="mean")
    group.add_argument("--output-tokens", type=float, required=True, metavar="N", help="mean")
    group.add_argument("--slo-ttft-ms", type=float, metavar="MS", help="time to first token")
    group.add_argument("--slo-tpot-ms", type=float, metavar="MS", help="time per token after it")


def run(args: argparse.Namespace) -> int:
    """Carry out the command; 0.

    Raises:
        ConfigError: an option is not allowed, or a file cannot be written.
    """
    _check_files(args)
    question = read_question(args)
    plan = make_plan(question)
    print(text_of(plan))
    if args.json is not None:
        content = msgspec.json.format(msgspec.json.encode(as_mapping(plan))) + b"\n"
        with writing(args.json):
            args.json.write_bytes(content)
    if args.map is not None:
        found = make_map(question)
        with writing(args.map):
            draw_map(found, args.map)
    return 0


def read_question(args: argparse.Namespace) -> Question:
    """The question of the given options; ConfigError names the option at fault."""
    for name in ("num_target_devices", "num_draft_devices"):
        check_int(name, getattr(args, name), 1, optional=True)
    asked = _profiled(args) if args.device is None else _modelled(args)
    bounds = {"ttft_ms": args.slo_ttft_ms, "tpot_ms": args.slo_tpot_ms}
    is_bound = any(bound is not None for bound in bounds.values())
    return Question(
        source=asked.source,
        acceptance=asked.acceptance,
        in_flight=args.in_flight,
        prompt_tokens=args.prompt_tokens,
        output_tokens=args.output_tokens,
        slo=Slo(**bounds) if is_bound else None,
        num_target_devices=asked.num_target_devices,
        num_draft_devices=asked.num_draft_devices,
        max_k=args.max_k,
        overhead_ms=asked.overhead_ms if args.overhead_ms is None else args.overhead_ms,
        round_trip_ms=asked.round_trip_ms,
        goal=args.goal,
    )


class _Pair(NamedTuple):
    """What the options of the pair say."""

    source: Source
    acceptance: Acceptance
    num_target_devices: int
    num_draft_devices: int
    overhead_ms: float = 0.0
    round_trip_ms: float = 0.0


def _modelled(args: argparse.Namespace) -> _Pair:
    gpu = find_gpu("device", args.device)
    for name in ("target", "draft"):
        if getattr(args, name) is None:
            raise ConfigError(f"minedraft: {name} is missing; --device needs it")
    target, draft = (find_model(name, getattr(args, name)) for name in ("target", "draft"))
    num_target, num_draft = args.num_target_devices or 1, args.num_draft_devices or 1
    check_num_gpus("num_target_devices", num_target, target)
    check_num_gpus("num_draft_devices", num_draft, draft)
    pair = Pair(
        target=Placement(model=target, gpu=gpu, num_gpus=num_target),
        draft=Placement(model=draft, gpu=gpu, num_gpus=num_draft),
    )
    return _Pair(DeviceSource(pair), _acceptance(args, target, draft), num_target, num_draft)


def _profiled(args: argparse.Namespace) -> _Pair:
    profile = read_profile(args.profile)
    for name in ("target", "draft"):
        given, own = getattr(args, name), getattr(profile, f"{name}_model")
        if given is not None and Path(given).name != Path(own).name:
            raise ConfigError.bad_value(name, given, f"{own!r}, of which the profile is, or none")
    for role in ROLES:
        name, measured = f"num_{role}_devices", profile.num_devices(role)
        if getattr(args, name) not in (None, measured):
            allowed = f"{measured}, on which the profile was measured, or none"
            raise ConfigError.bad_value(name, getattr(args, name), allowed)
    if args.acceptance is None:
        raise ConfigError("minedraft: acceptance is missing; --profile needs it, and measures none")
    if args.dataset is not None:
        raise ConfigError("minedraft: dataset is not allowed; --profile has no assumed acceptance")
    return _Pair(
        ProfileSource(profile),
        _read_acceptance(args.acceptance),
        profile.num_target_devices,
        profile.num_draft_devices,
        profile.overhead_ms,
        profile.round_trip_ms,
    )


def as_mapping(plan: Plan) -> dict[str, Any]:
    """All figures of a plan, for a JSON file."""
    other = plan.next_best
    return {
        "goal": plan.question.goal,
        "source": plan.question.source.title,
        "acceptance": list(plan.question.acceptance.conditional),
        "in_flight": plan.question.in_flight,
        "prompt_tokens": plan.question.prompt_tokens,
        "output_tokens": plan.question.output_tokens,
        "recommended": _row(plan.recommended),
        "next_best": None if other is None else _row(other),
        "margin": plan.margin,
        "two_batch_over_sequential": None
        if plan.gain is None
        else {"paper_convention": plan.gain.paper, "equal_in_flight": plan.gain.fair},
        "rows": [_row(row) for row in plan.rows],
        "paper_convention": [_row(row) for row in plan.paper_rows],
        "replicas": _row(plan.replicas),
        "without_a_row": dict(plan.missing),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "mode": row.mode,
        "num_speculative_tokens": row.k,
        "placement": row.placement,
        "num_devices": row.num_devices,
        "in_flight": row.steady.in_flight,
        "tokens_per_s": row.tokens_per_s,
        "tokens_per_s_per_device": row.tokens_per_s_per_device,
        "ms_per_token": row.ms_per_token,
        "ttft_ms": row.ttft_ms,
        "keeps_slo": None if row.slo is None else row.keeps_slo,
        "drafter_share": row.steady.drafter_share,
        "engines_per_drafter": row.engines_per_drafter,
    }


def _acceptance(args: argparse.Namespace, target: Model, draft: Model) -> Acceptance:
    if args.acceptance is None:
        return known_acceptance(target, draft, args.dataset or "spec-bench")
    if args.dataset is not None:
        raise ConfigError("minedraft: give --acceptance or --dataset, not both")
    return _read_acceptance(args.acceptance)


def _read_acceptance(text: str) -> Acceptance:
    try:
        rates = tuple(float(each) for each in text.split(","))
    except ValueError as error:
        allowed = "one number from 0 to 1, or several with commas between"
        raise ConfigError.bad_value("acceptance", text, allowed) from error
    return Acceptance(rates)


def _check_files(args: argparse.Namespace) -> None:
    check_distinct({"--json": args.json, "--map": args.map})
    for path in filter(None, (args.json, args.map)):
        check_writable(path)
    if args.map is not None and find_spec("matplotlib") is None:
        raise ConfigError("minedraft: --map needs matplotlib; install minedraft[plot]")
