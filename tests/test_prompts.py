"""Prompt files: every shape of row, and an error that names the place for every bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minedraft import ConfigError
from minedraft.prompts import read_prompts


def _write(folder: Path, *lines: str) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_three_shapes(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        json.dumps({"prompt": "one"}),
        "",
        json.dumps({"question_id": 81, "turns": ["two", "and then"]}),
        json.dumps({"id": "c", "question": "drei ß"}),
    )
    prompts = read_prompts(path)
    assert [(each.id, each.text) for each in prompts] == [(0, "one"), (81, "two"), ("c", "drei ß")]


def test_limit(tmp_path: Path) -> None:
    path = _write(tmp_path, *(json.dumps({"prompt": str(i)}) for i in range(5)))
    assert [each.text for each in read_prompts(path, limit=2)] == ["0", "1"]


def test_the_shipped_prompts_are_whole() -> None:
    path = Path(__file__).parents[1] / "examples" / "prompts" / "spec_bench_64.jsonl"
    prompts = read_prompts(path)
    assert len(prompts) == 64
    assert len({each.id for each in prompts}) == 64


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 is no JSON object"),
        ('{"text": "x"}', "line 2 has no text"),
        ('{"prompt": "  "}', "line 2 has no text"),
        ('{"turns": []}', "line 2 has no text"),
        ('{"turns": "x"}', "line 2 has no text"),
        ('{"prompt": 3}', "line 2 has no text"),
    ],
)
def test_bad_rows(line: str, says: str, tmp_path: Path) -> None:
    path = _write(tmp_path, '{"prompt": "fine"}', line)
    with pytest.raises(ConfigError, match=says):
        read_prompts(path)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read prompts file .*missing"):
        read_prompts(tmp_path / "missing")
    with pytest.raises(ConfigError, match="has no prompt"):
        read_prompts(_write(tmp_path, "", " "))
    (tmp_path / "prompts.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read prompts file"):
        read_prompts(tmp_path / "prompts.jsonl")


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes('\ufeff{"prompt": "one\u2028two\u0085three"}\r\n{"prompt": "four"}\n'.encode())
    assert [each.text for each in read_prompts(path)] == ["one\u2028two\u0085three", "four"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"prompt": "\\ud800"}', "surrogate"),
        ('{"id": "\\udc80", "prompt": "a"}', "surrogate"),
        ('{"x": ' + "[" * 100_000, "not JSON"),
        ('{"id": ' + "1" * 5000 + ', "prompt": "a"}', "not JSON"),
    ],
)
def test_odd_json_is_refused_by_its_line(line: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line)
    with pytest.raises(ConfigError, match=f"line 2.*{named}"):
        read_prompts(path)
