"""``minedraft train-eagle`` and ``train-medusa``: heads trained on what a small target says.

Owns flags and printed progress; training is minedraft.heads.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minedraft.errors import ConfigError
from minedraft.methods import EAGLE_HEADS, MEDUSA
from minedraft.prompts import read_prompts
from minedraft.validation import check_int, check_number, check_str

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both subcommands."""
    eagle = subparsers.add_parser(
        "train-eagle",
        help="train an EAGLE or EAGLE-3 head for a small target on its own texts",
        description="The head is for --draft-method eagle or eagle3, and for vLLM's own. "
        + _WHAT_FOR,
        allow_abbrev=False,
    )
    eagle.add_argument(
        "--method", choices=EAGLE_HEADS, default="eagle3", help="default: %(default)s"
    )
    eagle.add_argument("--depths", type=int, default=4, help="tokens ahead; default: %(default)s")
    eagle.add_argument(
        "--draft-vocab",
        type=int,
        metavar="N",
        help="draft the N most frequent tokens of the texts alone (eagle3); default: all",
    )
    medusa = subparsers.add_parser(
        "train-medusa",
        help="train Medusa heads for a small target on its own texts",
        description="The heads are for --draft-method medusa, and for vLLM's own. " + _WHAT_FOR,
        allow_abbrev=False,
    )
    medusa.add_argument(
        "--heads",
        dest="depths",
        type=int,
        default=4,
        metavar="N",
        help="each for one token more; default: %(default)s",
    )
    medusa.set_defaults(method=MEDUSA, draft_vocab=None)
    for parser in (eagle, medusa):
        _add_shared(parser)
        parser.set_defaults(run=run)


_WHAT_FOR = "On a CPU, for Llamas of a few hundred million weights. A run that was stopped goes on."


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=Path, metavar="TARGET", help="folder of a Llama")
    parser.add_argument("--prompts", required=True, metavar="P.jsonl")
    parser.add_argument("--output", required=True, type=Path, metavar="HEAD", help="new folder")
    parser.add_argument("--limit", type=int, metavar="N", help="use the first N prompts")
    parser.add_argument(
        "--held-out", type=int, default=8, metavar="N", help="to measure on; default: %(default)s"
    )
    parser.add_argument(
        "--num-tokens", type=int, default=128, metavar="N", help="of a text; default: %(default)s"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="default: %(default)s")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="of the checkpoint; default: %(default)s",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chat", action="store_true", help="apply the target's chat template")


def run(args: argparse.Namespace) -> int:
    """Train and write; 0.

    Raises:
        ConfigError: a flag is not allowed, or the target is no Llama.
    """
    _check(args)
    texts = [each.text for each in read_prompts(args.prompts, args.limit)]
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError("minedraft: this needs torch and transformers, as minedraft[cpu] brings")
    from minedraft.heads import Course, HeadKind, HeadTraining, run_course

    try:
        course = Course(
            target=args.target,
            kind=HeadKind(args.method),
            prompts=_token_ids(args, texts),
            num_held_out=args.held_out,
            num_tokens=args.num_tokens,
            temperature=args.temperature,
            training=HeadTraining(
                epochs=args.epochs,
                learning_rate=args.learning_rate,
                depths=args.depths,
                seed=args.seed,
            ),
            draft_vocab=args.draft_vocab,
            dtype=args.dtype,
        )
    except ValueError as error:
        raise ConfigError(f"minedraft: {error}") from error
    folder = run_course(course, args.output, report_text=_say_text, report=_say)
    print(f"wrote {folder}")
    return 0


def _check(args: argparse.Namespace) -> None:
    if not (args.target / "config.json").is_file():
        raise ConfigError.bad_value("TARGET", str(args.target), "a folder with a model")
    check_str("--output", str(args.output))
    check_int("--limit", args.limit, 2, optional=True)
    check_int("--num-tokens", args.num_tokens, 2)
    check_int("--epochs", args.epochs, 1)
    check_int("--draft-vocab", args.draft_vocab, 2, optional=True)
    check_int("--heads" if args.method == MEDUSA else "--depths", args.depths, 1, 16)
    check_int("--seed", args.seed, 0, 2**32 - 1)
    check_number("--temperature", args.temperature, 0.0, 10.0)
    check_number("--learning-rate", args.learning_rate, 0.0, 1.0, low_open=True)


def _token_ids(args: argparse.Namespace, texts: list[str]) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(args.target)
    if args.chat and tokenizer.chat_template is None:
        raise ConfigError(f"minedraft: --chat is not allowed: {args.target} has no chat template")
    if args.chat:
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
            for text in texts
        ]
    return [list(tokenizer(text, add_special_tokens=not args.chat)["input_ids"]) for text in texts]


def _say_text(number: int, total: int) -> None:
    if number % 10 == 0 or number == total:
        print(f"text {number} of {total}", file=sys.stderr, flush=True)


def _say(progress: Any) -> None:
    shares = ", ".join(f"{each:.0%}" for each in progress.acceptance)
    print(
        f"epoch {progress.epoch} of {progress.epochs}: loss {progress.loss:.3f}, held-out "
        f"acceptance by position {shares}",
        file=sys.stderr,
        flush=True,
    )
