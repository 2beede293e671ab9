"""Data sets: every row shape, the bounds, the sample, and an error for what cannot be read."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minedraft import ConfigError
from minedraft.bench.dataset_sources import SOURCES
from minedraft.bench.datasets import (
    DATASET_NAMES,
    BenchPrompt,
    DatasetCounts,
    DatasetSpec,
    LoadedDataset,
    load_dataset,
)

SPEC_BENCH = Path(__file__).parents[2] / "examples" / "prompts" / "spec_bench_64.jsonl"


def _words(text: str) -> int:
    return len(text.split())


def _never(text: str) -> int:
    raise AssertionError("nothing is to be counted")


def _write(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def _load(path: Path, name: str = "jsonl", **options: Any) -> LoadedDataset:
    return load_dataset(DatasetSpec(name=name, path=str(path), **options), _words)


def _turns(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": who, "value": text} for who, text in pairs]


def _messages(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": who, "content": text} for who, text in pairs]


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        (
            "sharegpt",
            {"id": "QWJhYvA_0", "conversations": _turns(("human", "Hi"), ("gpt", "Hello"))},
            BenchPrompt(id="QWJhYvA_0", text="Hi"),
        ),
        (
            "sharegpt",
            {"conversations": _turns(("system", "Be kind."), ("user", "Hi"))},
            BenchPrompt(id="0", text="Hi"),
        ),
        (
            "arena",
            {
                "question_id": "58210e39",
                "conversation_a": _messages(("user", "Why?"), ("assistant", "Because.")),
                "conversation_b": _messages(("user", "Why?"), ("assistant", "So.")),
            },
            BenchPrompt(id="58210e39", text="Why?"),
        ),
        ("arena", {"prompt": ["Why?", "And then?"]}, BenchPrompt(id="0", text="Why?")),
        (
            "tough",
            {"question": "Prove it.", "domain": "Topology"},
            BenchPrompt(id="0", text="Prove it.", category="Topology"),
        ),
        (
            "tough",
            {"id": 7, "conversations": _turns(("human", "Prove it."), ("gpt", ""))},
            BenchPrompt(id="7", text="Prove it."),
        ),
        (
            "spec-bench",
            {"question_id": 81, "category": "writing", "turns": ["One", "Two"]},
            BenchPrompt(id="81", text="One", category="writing"),
        ),
        (
            "mt-bench",
            {"prompt_id": 9, "category": "math", "prompt": ["One", "Two"]},
            BenchPrompt(id="9", text="One", category="math"),
        ),
        ("gsm8k", {"question": "1 + 1?", "answer": "#### 2"}, BenchPrompt(id="0", text="1 + 1?")),
        (
            "humaneval",
            {"task_id": "HumanEval/0", "prompt": "def f():\n    "},
            BenchPrompt(id="HumanEval/0", text="def f():\n    "),
        ),
        ("jsonl", {"prompt": "One"}, BenchPrompt(id="0", text="One")),
        ("jsonl", {"turns": ["One"]}, BenchPrompt(id="0", text="One")),
        ("jsonl", {"prompt": " ", "question": "One"}, BenchPrompt(id="0", text="One")),
    ],
)
def test_row_shapes(name: str, row: object, expected: BenchPrompt, tmp_path: Path) -> None:
    assert _load(_write(tmp_path, row), name).prompts == (expected,)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"conversations": []},
        {"conversations": [3]},
        {"conversations": "  "},
        {"conversations": _turns(("gpt", "As I said"), ("human", "Go on"))},
        {"conversations": _turns(("system", "Be kind."))},
        {"conversations": [{"from": "human"}]},
    ],
)
def test_rows_without_a_prompt_are_counted(row: object, tmp_path: Path) -> None:
    good = {"conversations": _turns(("human", "Hi"))}
    loaded = _load(_write(tmp_path, row, good), "sharegpt")
    assert [each.id for each in loaded.prompts] == ["1"]
    assert loaded.counts == DatasetCounts(
        num_rows=2, num_read=2, num_without_text=1, num_too_short=0, num_too_long=0, num_kept=1
    )


def test_bounds_are_inclusive_and_counted(tmp_path: Path) -> None:
    texts = ["a", "a b", "a b c", "a b c d", "a b c d e", ""]
    path = _write(tmp_path, *({"prompt": text} for text in texts))
    loaded = _load(path, min_prompt_tokens=2, max_prompt_tokens=3)
    assert {each.text for each in loaded.prompts} == {"a b", "a b c"}
    assert loaded.counts == DatasetCounts(
        num_rows=6, num_read=6, num_without_text=1, num_too_short=1, num_too_long=2, num_kept=2
    )


def test_reading_ends_with_enough_prompts(tmp_path: Path) -> None:
    path = _write(tmp_path, *({"prompt": f"p{i}"} for i in range(100)))
    loaded = _load(path, count=10)
    assert loaded.counts == DatasetCounts(
        num_rows=100, num_read=10, num_without_text=0, num_too_short=0, num_too_long=0, num_kept=10
    )


def test_nothing_is_counted_without_bounds(tmp_path: Path) -> None:
    path = _write(tmp_path, {"prompt": "One"})
    assert len(load_dataset(DatasetSpec(name="jsonl", path=str(path)), _never).prompts) == 1


def test_the_sample_is_that_of_the_seed() -> None:
    ids = [each.id for each in _load(SPEC_BENCH, "spec-bench", count=4, seed=1).prompts]
    # The rows whose "1/<row>" has the smallest SHA-256; row 0 has the id 81.
    assert ids == ["92", "125", "118", "84"]


def test_smaller_samples_begin_larger_ones_and_seeds_differ() -> None:
    whole = _load(SPEC_BENCH, "spec-bench", seed=1).prompts
    assert len({each.id for each in whole}) == 64
    assert _load(SPEC_BENCH, "spec-bench", seed=1, count=9).prompts == whole[:9]
    assert _load(SPEC_BENCH, "spec-bench", seed=2, count=9).prompts != whole[:9]
    assert {each.category for each in whole} >= {"writing", "math"}


def test_ids_are_unique(tmp_path: Path) -> None:
    path = _write(tmp_path, *({"id": "x", "prompt": f"p{i}"} for i in range(3)))
    ids = [each.id for each in _load(path).prompts]
    assert len(set(ids)) == 3
    assert ids[0] == "x"
    assert all(each.startswith("x#") for each in ids[1:])


def test_arrays_and_odd_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('\n[ {"prompt": "a\u2028b"},\n {"prompt": "c"} ]\n', encoding="utf-8")
    assert {each.text for each in _load(path).prompts} == {"a\u2028b", "c"}
    path.write_text('{"prompt": "a\u2028b"}\r\n\r\n{"prompt": "c"}', encoding="utf-8")
    assert {each.text for each in _load(path).prompts} == {"a\u2028b", "c"}


@pytest.mark.parametrize(
    "end", ["", ",", ', {"prompt": "thi', ', {"prompt"', r', {"prompt": "\u12']
)
def test_an_array_that_was_cut_off_keeps_its_whole_rows(
    end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"prompt": "one"}, {"prompt": "two"}' + end, encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert {each.text for each in _load(path).prompts} == {"one", "two"}
    assert "cut off; kept its 2 whole rows" in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"prompt": "a"}\n{', "line 2 is not JSON"),
        ('{"prompt": "a"}\n3', "line 2 is no JSON object"),
        ('[{"prompt": "a"}, {"prompt": b}, {"prompt": "c"}]', "row 2 is not JSON"),
        ("[{", "row 1 is not JSON"),
        ("", "no prompt is left .*: 0 rows"),
        ('{"text": "a"}', "1 rows, 1 without text in prompt or turns or question, 0 too short"),
    ],
)
def test_bad_files(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        _load(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read dataset.path = .*missing"):
        _load(tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"cannot read dataset.path"):
        _load(tmp_path / "bytes")


def test_none_left_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"1 rows, .* 1 too short, 0 too long"):
        _load(_write(tmp_path, {"prompt": "a"}), min_prompt_tokens=2)


@pytest.mark.parametrize("name", [name for name in DATASET_NAMES if SOURCES[name].hub])
def test_the_hub_is_asked_for_what_the_table_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, dict[str, object]]] = []

    def load(repo: str, **options: object) -> list[object]:
        asked.append((repo, options))
        return [{field: "text" for field in SOURCES[name].fields}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    loaded = load_dataset(DatasetSpec(name=name), _never)
    assert [each.text for each in loaded.prompts] == ["text"]
    hub = SOURCES[name].hub
    assert hub is not None
    more = {"data_files": hub.file} if hub.file else {}
    assert asked == [(hub.repo, {"name": hub.config, "split": hub.split, **more})]


def test_without_the_package_or_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install datasets, or give dataset\.path"):
        load_dataset(DatasetSpec(name="gsm8k"), _never)

    def load(repo: str, **options: object) -> object:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    with pytest.raises(ConfigError, match=r"'arena' .*ConnectionError: no route.*terms must be"):
        load_dataset(DatasetSpec(name="arena"), _never)


def test_mappings_round_trip() -> None:
    spec = DatasetSpec.from_mapping({"name": "gsm8k", "count": 8, "min_prompt_tokens": 16})
    assert spec.to_mapping() == {
        "name": "gsm8k",
        "path": None,
        "count": 8,
        "min_prompt_tokens": 16,
        "max_prompt_tokens": None,
        "seed": 0,
    }
    assert DatasetSpec.from_mapping(spec.to_mapping()) == spec


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (3, "dataset = 3 is not allowed"),
        ({}, "dataset has no name"),
        ({"name": "c4"}, "dataset.name = 'c4' is not allowed; allowed: sharegpt, arena"),
        ({"name": "gsm8k", "cuont": 3}, "did you mean 'count'"),
        ({"name": "gsm8k", "count": 0}, "dataset.count = 0"),
        ({"name": "gsm8k", "seed": -1}, "dataset.seed = -1"),
        ({"name": "gsm8k", "seed": True}, "dataset.seed = True"),
        ({"name": "gsm8k", "path": ""}, "dataset.path = ''"),
        ({"name": "gsm8k", "min_prompt_tokens": 0}, "dataset.min_prompt_tokens = 0"),
        (
            {"name": "gsm8k", "min_prompt_tokens": 9, "max_prompt_tokens": 8},
            "dataset.max_prompt_tokens = 8 is not allowed; allowed: an integer >= 9",
        ),
        ({"name": "jsonl"}, "dataset.path = None is not allowed; allowed: a file"),
        ({"name": "spec-bench"}, "dataset.path = None"),
    ],
)
def test_bad_specs(table: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DatasetSpec.from_mapping(table)
