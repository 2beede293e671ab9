"""Made-up pairs whose tokenizers know the marks of reasoning and of tool calls."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minedraft.models.made_up import MadeUpPair
from minedraft.models.tokenizer import MIN_VOCAB_SIZE

START, END = "<think>", "</think>"
CALL_START, CALL_END = "<tool_call>", "</tool_call>"


def pair_with_marks(pair: MadeUpPair, folder: Path, marks: Mapping[str, int]) -> MadeUpPair:
    """Copies of both models whose tokenizers call some ids by other names.

    The weights stay, so what is generated stays too. Ids below `MIN_VOCAB_SIZE` are needed
    for text and may not be renamed.
    """
    assert min(marks.values()) >= MIN_VOCAB_SIZE
    copy = MadeUpPair(target=folder / "target", draft=folder / "draft")
    for source, target in ((pair.target, copy.target), (pair.draft, copy.draft)):
        shutil.copytree(source, target)
        path = target / "tokenizer.json"
        path.write_text(json.dumps(_renamed(json.loads(path.read_text()), marks)))
    return copy


def _renamed(tokenizer: dict[str, Any], marks: Mapping[str, int]) -> dict[str, Any]:
    names = {token: name for name, token in marks.items()}
    model = tokenizer["model"]
    gone = {symbol for symbol, token in model["vocab"].items() if token in names}
    model["merges"] = [each for each in model["merges"] if "".join(each) not in gone]
    model["vocab"] = {names.get(token, old): token for old, token in model["vocab"].items()}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = [{"id": token, "content": name, **flags} for token, name in sorted(names.items())]
    return {**tokenizer, "added_tokens": [*tokenizer["added_tokens"], *added]}


def marks_that_end(
    answer: Sequence[int], prompt: Sequence[int], after: int
) -> dict[str, int] | None:
    """Ids for all marks; `END` is one that `answer` has for the first time after `after` tokens.

    None if it has none. The other ids occur neither in the answer nor in the prompt.
    """
    seen = {*answer, *prompt}
    unseen = (token for token in range(MIN_VOCAB_SIZE, 512) if token not in seen)
    others = dict(zip((START, CALL_START, CALL_END), unseen, strict=False))
    for at, token in enumerate(answer):
        if at >= after and token >= MIN_VOCAB_SIZE and token not in (*answer[:at], *prompt):
            return {END: token, **others}
    return None
