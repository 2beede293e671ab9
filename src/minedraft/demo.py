"""The demonstration behind ``scripts/demo``: four modes, one set of prompts, one report.

Owns the comparison and the report; every run is a ``minedraft generate`` of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minedraft.termination import exit_on_sigterm
from minedraft.trace import draw_timeline, read_trace, write_perfetto

MODES = ("none", "sequential", "two-batch", "wait-free")
EXIT_DIFFERENT = 1
EXIT_FAILED = 2
_LOG_LINES = 30
_COLUMNS = (
    ("devices", "devices", "{target} + {drafter}"),
    ("tokens/s", "tokens_per_s", "{:.1f}"),
    ("per device", "tokens_per_s_per_device", "{:.1f}"),
    ("accepted", "acceptance_rate", "{:.0%}"),
    ("tokens/step", "tokens_per_step", "{:.2f}"),
    ("t ms", "draft_ms", "{:.0f}"),
    ("V ms", "verify_ms", "{:.0f}"),
    ("overlap", "overlap_fraction", "{:.0%}"),
    ("steps", "num_steps", "{}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one mode gave: its rows by prompt id, and its summary."""

    mode: str
    tokens: Mapping[str, list[int]]
    summary: Mapping[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; 0 if all modes gave the same tokens, 1 if not, 2 if one failed."""
    args = _parser().parse_args(argv)
    args.results.mkdir(parents=True, exist_ok=True)
    try:
        outcomes = [_run(mode, args) for mode in MODES]
    except subprocess.CalledProcessError as error:
        print(f"demo: {' '.join(error.cmd)} failed", file=sys.stderr)
        return EXIT_FAILED
    different = compare(outcomes)
    report = render_report(args.target, args.draft, outcomes, different)
    (args.results / "report.md").write_text(report, encoding="utf-8")
    _draw(args.results / "two-batch.trace.jsonl", args.results)
    print(f"\n{report}\nWritten to {args.results}/: report.md, timeline.png, perfetto.json")
    return EXIT_DIFFERENT if different else 0


def compare(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each prompt whose tokens differ from those of the first outcome."""
    base, *others = outcomes
    return [
        f"prompt {prompt}: {other.mode} differs from {base.mode}"
        for other in others
        for prompt, tokens in base.tokens.items()
        if other.tokens.get(prompt) != tokens
    ]


def render_report(
    target: str, draft: str, outcomes: Sequence[Outcome], different: Sequence[str]
) -> str:
    """The Markdown report: verdict, table, and what the columns mean."""
    base = outcomes[0]
    verdict = "**The outputs differ:**\n\n" + "\n".join(f"- {line}" for line in different)
    if not different:
        verdict = f"All {len(base.tokens)} outputs are identical in the {len(outcomes)} modes."
    return "\n".join(
        [
            "# minedraft demo",
            "",
            f"Target `{target}`, draft `{draft}`, {base.summary['max_num_seqs']} in flight, "
            f"k = {base.summary['num_speculative_tokens']}, greedy, fp32.",
            "",
            verdict,
            "",
            *_table(outcomes),
            "",
            "Devices: the target's + the drafter's (on a CPU, cores). A step is one pass of the "
            "target; tokens/step are those of all its requests. Accepted is the share of draft "
            "tokens that the target took. t is the time to draft a batch, V to verify one; overlap "
            "is the share of draft time hidden behind verification. On a CPU the target is bound "
            "by compute from a few tokens on, so that drafts cost there what they save on a GPU: "
            "compare modes, do not read a speed-up "
            "over plain decoding.",
            "",
        ]
    )


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    head = ["mode", *(title for title, _, _ in _COLUMNS)]
    rows = [
        [each.mode, *(_cell(each.summary.get(key), form) for _, key, form in _COLUMNS)]
        for each in outcomes
    ]
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cell(value: object, form: str) -> str:
    if value is None:
        return "–"  # noqa: RUF001 (a dash for "none")
    return form.format(**value) if isinstance(value, dict) else form.format(value)


def _run(mode: str, args: argparse.Namespace) -> Outcome:
    base = args.results / mode
    files = {name: base.with_suffix(f".{name}") for name in ("out.jsonl", "trace.jsonl", "json")}
    command = [sys.executable, "-m", "minedraft", "generate", args.target]
    command += ["--mode", mode, "-k", str(args.num_speculative_tokens)]
    command += [] if mode == "none" else ["--draft-model", args.draft]
    command += ["--prompts", str(args.prompts), "--limit", str(args.limit), "--chat"]
    command += ["--max-tokens", str(args.max_tokens), "--max-num-seqs", str(args.max_num_seqs)]
    command += ["--dtype", "float32", "--max-model-len", "2048"]
    command += ["--output", str(files["out.jsonl"]), "--trace", str(files["trace.jsonl"])]
    command += ["--summary", str(files["json"])]
    _call(command, mode, base.with_suffix(".log"))
    rows = [json.loads(line) for line in files["out.jsonl"].read_text("utf-8").splitlines()]
    return Outcome(
        mode=mode,
        tokens={str(row["id"]): row["token_ids"] for row in rows},
        summary=json.loads(files["json"].read_text("utf-8")),
    )


def _call(command: Sequence[str], mode: str, log: Path) -> None:
    """Run one mode; what its engine prints goes to `log`, and to the screen if it fails."""
    print(f"mode {mode}: running, log in {log}", flush=True)
    begin = time.monotonic()
    with log.open("w", encoding="utf-8") as output, exit_on_sigterm():
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(*lines[-_LOG_LINES:], sep="\n", file=sys.stderr)
        done.check_returncode()
    print(f"mode {mode}: done in {time.monotonic() - begin:.0f} s", flush=True)


def _draw(trace: Path, folder: Path) -> None:
    header, steps = read_trace(trace)
    draw_timeline(header, steps, folder / "timeline.png")
    write_perfetto(header, steps, folder / "perfetto.json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--max-num-seqs", type=int, default=8)
    parser.add_argument("-k", "--num-speculative-tokens", type=int, default=3)
    return parser


if __name__ == "__main__":
    sys.exit(main())
