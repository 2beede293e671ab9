"""Tool calls and reasoning over HTTP: `minedraft serve` answers what plain `vllm serve` does.

The models are made up and call no tool by themselves, so the calls are forced by grammars
that apply once the reasoning has ended.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engines import draft_options
from minedraft.models.made_up import MadeUpPair
from minedraft.models.tokenizer import MIN_VOCAB_SIZE
from scenarios import running_llm
from servers import BIN, ENGINE_FLAGS, minedraft_flags, running_server
from thinking import CALL_END, CALL_START, END, START, pair_with_marks

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

#: Only what no merge of the tokenizer touches, so that the marks change no prompt.
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}="
QUESTIONS = [f"{left}*{right}" for left in range(6) for right in range(6)]
TOKENS = 110
_CITY = {"type": "string", "enum": ["Oslo", "Rome", "Bergen"]}


def _tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "parameters": {**schema, "additionalProperties": False}},
    }


TOOLS = [
    _tool("weather", city=_CITY, days={"type": "integer", "minimum": 1, "maximum": 9}),
    _tool("time", city=_CITY),
]
_SCHEMA = {"name": "place", "schema": TOOLS[0]["function"]["parameters"]}
KINDS: dict[str, dict[str, Any]] = {
    "required": {"tools": TOOLS, "tool_choice": "required"},
    "named": {
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    },
    "auto": {"tools": TOOLS},
    "schema": {"response_format": {"type": "json_schema", "json_schema": _SCHEMA}},
    "free": {},
}


@dataclass(slots=True)
class Reply:
    """One answer, the same whether it came whole or in pieces."""

    content: str = ""
    reasoning: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, choice: dict[str, Any], message: dict[str, Any]) -> None:
        """Take in a whole message or the next piece of it."""
        self.content += message.get("content") or ""
        self.reasoning += message.get("reasoning") or ""
        self.token_ids += choice.get("token_ids") or []
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        for at, call in enumerate(message.get("tool_calls") or []):
            parts = self.calls.setdefault(call.get("index", at), ["", ""])
            parts[0] += call["function"].get("name") or ""
            parts[1] += call["function"].get("arguments") or ""


def _ask(url: str, question: str, kind: str, stream: bool) -> Reply:
    body = {
        "model": "pair",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "return_token_ids": True,
        "stream": stream,
        **KINDS[kind],
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    reply = Reply()
    with urllib.request.urlopen(request, timeout=120) as response:
        if not stream:
            [choice] = json.load(response)["choices"]
            reply.add(choice, choice["message"])
        for line in response:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    reply.add(choice, choice["delta"])
    return reply


@dataclass(frozen=True, slots=True)
class Setting:
    """What both servers get, and the questions that are asked."""

    pair: MadeUpPair
    flags: list[str]
    questions: list[str]


@pytest.fixture(scope="module")
def setting(pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """The mark of the end is the token that ends the reasoning of most questions soon."""
    from vllm import SamplingParams

    with running_llm(pairs["high"].target) as llm:
        chats: Any = [[{"role": "user", "content": each}] for each in QUESTIONS]
        params = SamplingParams(temperature=0.0, max_tokens=40)
        outputs = llm.chat(chats, params, chat_template=TEMPLATE, use_tqdm=False)
    answers = [output.outputs[0].token_ids for output in outputs]
    counts = Counter(
        t for each in answers for t in {*each[3:]} - {*each[:3]} if t >= MIN_VOCAB_SIZE
    )
    [(end, _)] = counts.most_common(1)
    ending = [q for q, each in zip(QUESTIONS, answers, strict=True) if end in each[3:]]
    endless = [q for q, each in zip(QUESTIONS, answers, strict=True) if end not in each]
    others = [token for token in range(MIN_VOCAB_SIZE, 512) if token not in counts]
    marks = {END: end, **dict(zip((START, CALL_START, CALL_END), others, strict=False))}
    folder: Path = tmp_path_factory.mktemp("tools")
    (folder / "template.jinja").write_text(TEMPLATE)
    flags = ["--chat-template", str(folder / "template.jinja"), "--served-model-name", "pair"]
    flags += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    flags += ["--reasoning-parser", "deepseek_r1", *ENGINE_FLAGS]
    # Models that are made up write blanks until they are cut.
    compact = {"backend": "xgrammar", "disable_any_whitespace": True}
    flags += ["--structured-outputs-config", json.dumps(compact)]
    pair = pair_with_marks(pairs["high"], folder, marks)
    return Setting(pair, flags, [*ending[:4], *endless[:1]])


Replies = dict[tuple[str, str, bool], Reply]


def _replies(command: list[str], setting: Setting) -> Replies:
    keys = [(q, kind, stream) for q in setting.questions for kind in KINDS for stream in (0, 1)]
    asked = [(q, kind, bool(stream)) for q, kind, stream in keys]
    with running_server([*command, *setting.flags]) as url, ThreadPoolExecutor(8) as pool:
        replies = pool.map(lambda each: _ask(url, *each), asked)
        return dict(zip(asked, replies, strict=True))


@pytest.fixture(scope="module")
def plain(setting: Setting) -> Replies:
    return _replies([str(BIN / "vllm"), "serve", str(setting.pair.target)], setting)


@pytest.fixture(scope="module")
def drafted(setting: Setting, plain: Replies) -> Iterator[Replies]:
    flags = minedraft_flags(draft_options(setting.pair))
    command = [str(BIN / "minedraft"), "serve", str(setting.pair.target), *flags]
    yield _replies(command, setting)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_vllm_serve(drafted: Replies, plain: Replies, kind: str, stream: bool) -> None:
    ours, theirs = (
        {key: reply for key, reply in replies.items() if key[1:] == (kind, stream)}
        for replies in (drafted, plain)
    )
    assert ours == theirs


def test_the_requests_are_what_they_say(plain: Replies, setting: Setting) -> None:
    """Guards against tools that are not called, and reasoning that never ends, or at once."""
    whole = Counter[str]()
    for question in setting.questions[:-1]:
        for kind, names in (("required", {"weather", "time"}), ("named", {"weather"})):
            reply = plain[question, kind, False]
            assert reply.reasoning
            assert {name for name, _ in reply.calls.values()} <= names
            whole[kind] += _all_json(arguments for _, arguments in reply.calls.values())
        whole["schema"] += _all_json([plain[question, "schema", False].content])
    # One that the limit cuts is no JSON; not all are cut.
    assert min(whole[kind] for kind in ("required", "named", "schema")) > 0
    called = [key for key, reply in plain.items() if reply.calls]
    assert {kind for _, kind, _ in called} == {"required", "named"}
    assert plain[setting.questions[-1], "required", False].calls == {}


def _all_json(texts: Iterable[str]) -> bool:
    try:
        return bool([json.loads(each) for each in texts])
    except json.JSONDecodeError:
        return False
