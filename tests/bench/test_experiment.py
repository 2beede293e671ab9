"""Experiments: what a file's tables become, which runs are the same, and what is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench_runs import make_run
from minedraft.bench.experiment import Experiment, ReportPlan
from minedraft.bench.message import decode_request, encode_request
from minedraft.bench.spec import MODES, RunSpec
from minedraft.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
HEAD = 'name = "e"\n'
BASE = (
    HEAD
    + '[base]\ntarget = "T"\ndraft = "D"\nmode = "two-batch"\n'
    + 'dataset = {name = "jsonl", path = "p"}\n'
)
EMULATE = "emulate = {target = {fixed_ms = 30}, draft = {fixed_ms = 5, per_token_ms = 0}}\n"


def _read(tmp_path: Path, text: str, *, quick: bool = False) -> Experiment:
    path = tmp_path / "e.toml"
    path.write_text(text)
    return Experiment.from_toml(path, quick=quick)


def test_identity_is_pinned() -> None:
    # Whoever changes this number makes every result there is a stranger.
    assert make_run().to_mapping() == {
        "mode": "two-batch",
        "target": "T",
        "draft": "D",
        "dataset": {"name": "jsonl", "path": "p.jsonl"},
    }
    assert make_run().identity == (
        "b48787fe677f189a2226ff4726d10eb2dd61fa6764c32839d2e0e6c9b1600697"
    )


def test_a_new_field_with_a_default_leaves_identities_unchanged() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Wider(RunSpec):
        new_number: int = 3
        new_text: str | None = None

    table = make_run(temperature=0.5, repeat=2).to_mapping()
    assert Wider.from_mapping(table).identity == RunSpec.from_mapping(table).identity
    changed = Wider.from_mapping({**table, "new_number": 4})
    assert changed.identity != RunSpec.from_mapping(table).identity


def test_defaults_that_are_spelt_out_are_the_same_run() -> None:
    spelt = make_run(temperature=0, num_speculative_tokens=4, load={}, tetris=None)
    assert spelt.identity == make_run().identity
    assert make_run(temperature=1).identity == make_run(temperature=1.0).identity
    assert make_run(repeat=1).identity != make_run().identity
    assert make_run(repeat=1).setting == make_run().setting == make_run().identity


def test_emulation_is_told_by_its_numbers(tmp_path: Path) -> None:
    file = tmp_path / "device.toml"
    file.write_text("[target]\nfixed_ms = 30\n[draft]\nfixed_ms = 5.0\nper_token_ms = 0\n")
    table = {"target": {"fixed_ms": 30.0}, "draft": {"fixed_ms": 5.0}}
    assert make_run(emulate=str(file)) == make_run(emulate=table)
    assert make_run(emulate=str(file)).emulate == table
    virtual = make_run(emulate={**table, "clock": "virtual"})
    assert virtual.emulate == {**table, "clock": "virtual"}
    assert virtual.setting != make_run(emulate=table).setting


def test_what_a_mode_ignores_is_no_part_of_its_run() -> None:
    emulate = {"target": {"fixed_ms": 30.0}, "draft": {"fixed_ms": 5.0}}
    plain = make_run("none", num_speculative_tokens=7, draft_device="cpu:1", emulate=emulate)
    assert plain.to_mapping() == {
        "mode": "none",
        "target": "T",
        "dataset": {"name": "jsonl", "path": "p.jsonl"},
        "emulate": {"target": {"fixed_ms": 30.0}, "draft": {"fixed_ms": 0.0}},
    }
    assert plain.value("num_speculative_tokens") is None
    assert plain.value("emulate.draft.fixed_ms") is None
    assert plain.value("emulate.target.fixed_ms") == 30.0
    own = make_run(
        "vllm-sd", num_speculative_tokens=7, draft_device="cpu:1", tetris={"extra_tokens": 3}
    )
    assert (own.num_speculative_tokens, own.draft_device, own.tetris) == (7, None, None)


def test_a_method_without_a_draft_model_needs_and_keeps_none() -> None:
    lookup = {"draft_method": "ngram", "draft_options": {"prompt_lookup_min": 2}}
    for mode in ("two-batch", "vllm-sd"):
        run = make_run(mode, **lookup)
        assert (run.draft, run.value("draft"), run.draft_method) == (None, None, "ngram")
        assert run == make_run(mode, draft=None, **lookup)
        assert run.setting != make_run(mode, draft_method="ngram").setting
    assert make_run("none", **lookup) == make_run("none")
    assert make_run(draft_method="model") == make_run()
    for wrong, named in (
        ({"draft_method": "mtp"}, "draft_method = 'mtp'"),
        ({"draft_method": "eagle", "draft": None}, "draft = None"),
        ({"draft_options": {"prompt_lookup_min": 2}}, "'prompt_lookup_min'"),
        ({**lookup, "draft_options": {"prompt_lookup_min": 0}}, "prompt_lookup_min = 0"),
        ({"draft": None}, "draft = None"),
    ):
        with pytest.raises(ConfigError, match=named):
            make_run(**wrong)


def test_another_mode_keeps_the_rest() -> None:
    run = make_run(max_num_seqs=16, load={"in_flight": 16, "kind": "closed-loop"})
    half = run.in_mode("sequential", max_num_seqs=8)
    assert (half.mode, half.max_num_seqs) == ("sequential", 8)
    assert half.load == {"in_flight": 8, "kind": "closed-loop"}
    assert run.in_mode("sequential").load == run.load
    with pytest.raises(ConfigError, match="mode 'sequential' drafts"):
        run.in_mode("none").in_mode("sequential")


def test_a_request_carries_every_field_and_comes_back() -> None:
    run = make_run(emulate={"target": {"fixed_ms": 3.0}, "draft": {"fixed_ms": 1.0}}, repeat=1)
    assert decode_request(encode_request(run, Path("out.json"))) == (run, Path("out.json"))
    with pytest.raises(ConfigError, match="the request cannot be read"):
        decode_request("{")
    with pytest.raises(ConfigError, match="output = None is not allowed"):
        decode_request("{}")


def test_grids_are_products_and_are_chained(tmp_path: Path) -> None:
    experiment = _read(
        tmp_path,
        "repeats = 2\n"
        + BASE
        + '[[grid]]\nmode = ["sequential", "two-batch"]\nnum_speculative_tokens = [2, 3]\n'
        '[[grid]]\nmax_num_seqs = [16]\nload.kind = ["closed-loop"]\nload.in_flight = [16]\n',
    )
    assert [
        (run.mode, run.num_speculative_tokens, run.max_num_seqs, dict(run.load), run.repeat)
        for run in experiment.runs
    ] == [
        *(("sequential", 2, 8, {}, 0), ("sequential", 3, 8, {}, 0)),
        *(("two-batch", 2, 8, {}, 0), ("two-batch", 3, 8, {}, 0)),
        ("two-batch", 4, 16, {"kind": "closed-loop", "in_flight": 16}, 0),
        *(("sequential", 2, 8, {}, 1), ("sequential", 3, 8, {}, 1)),
        *(("two-batch", 2, 8, {}, 1), ("two-batch", 3, 8, {}, 1)),
        ("two-batch", 4, 16, {"kind": "closed-loop", "in_flight": 16}, 1),
    ]


@pytest.mark.parametrize("key", ["emulate.draft.fixed_ms", '"emulate.draft.fixed_ms"'])
def test_dotted_fields_reach_into_tables(tmp_path: Path, key: str) -> None:
    experiment = _read(tmp_path, BASE + EMULATE + f"[[grid]]\n{key} = [5, 20]\n")
    target = {"fixed_ms": 30.0}
    assert [run.emulate for run in experiment.runs] == [
        {"target": target, "draft": {"fixed_ms": 5.0}},
        {"target": target, "draft": {"fixed_ms": 20.0}},
    ]


def test_plain_decoding_is_run_once_for_all_draft_lengths(tmp_path: Path) -> None:
    grid = '[[grid]]\nmode = ["none", "pearl"]\nnum_speculative_tokens = [2, 3]\n'
    runs = _read(tmp_path, BASE + grid).runs
    assert [(run.mode, run.value("num_speculative_tokens")) for run in runs] == [
        ("none", None),
        ("pearl", 2),
        ("pearl", 3),
    ]


def test_without_a_grid_the_base_is_the_run(tmp_path: Path) -> None:
    experiment = _read(tmp_path, BASE)
    assert (experiment.name, experiment.description, len(experiment.runs)) == ("e", "", 1)
    assert experiment.report == ReportPlan()


def test_quick_overrides_base_and_grid(tmp_path: Path) -> None:
    text = (
        "repeats = 3\n"
        + BASE
        + '[[grid]]\nmode = ["none", "two-batch", "pearl"]\nmax_num_seqs = [8, 16]\n'
        '[quick]\nrepeats = 1\nmode = ["none", "pearl"]\nmax_num_seqs = 2\ndataset.count = 4\n'
    )
    assert len(_read(tmp_path, text).runs) == 18
    quick = _read(tmp_path, text, quick=True)
    assert quick.name == "e-quick"
    dataset = {"name": "jsonl", "path": "p", "count": 4}
    assert [(run.mode, run.max_num_seqs, run.dataset) for run in quick.runs] == [
        ("none", 2, dataset),
        ("pearl", 2, dataset),
    ]


def test_the_report_is_read(tmp_path: Path) -> None:
    table = '[report]\nrows = ["load.in_flight"]\nfigures = ["a", "b"]\nbaseline = "none"\n'
    report = _read(tmp_path, BASE + table).report
    assert report == ReportPlan(
        rows=("load.in_flight",), figures=("a", "b"), baseline="none", series="mode"
    )
    assert ReportPlan.from_mapping(report.to_mapping()) == report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "cannot be read: "),
        (HEAD + "bas = 1", "unknown option 'bas' in an experiment (did you mean 'base'?)"),
        ('name = "a b"', "name = 'a b' is not allowed; allowed: small letters"),
        ("repeats = 1", "name = None is not allowed"),
        ("repeats = 0\n" + BASE, "repeats = 0 is not allowed; allowed: an integer from 1"),
        (HEAD + "[base]\nmode = 1", "mode = 1 is not allowed|target = None is not allowed"),
        (HEAD + '[base]\nmodes = "none"', "unknown option 'modes' in base (did you mean 'mode'?)"),
        (BASE + "repeat = 1", "unknown option 'repeat' in base"),
        (BASE + '"chat.x" = 1', "base = 'chat.x' is not allowed; allowed: dotted names below"),
        (BASE + 'chat = "yes"', "chat = 'yes' is not allowed; allowed: true or false"),
        (BASE + "load = 3", "load = 3 is not allowed; allowed: a table"),
        (BASE + "load = {at = 2020-01-01}", "load.at = datetime.date(2020, 1, 1) is not allowed"),
        (BASE + "load = {rate = inf}", "load.rate = inf is not allowed"),
        (BASE + "engine = {dtype = 'auto'}", "engine.dtype = 'auto' is not allowed; the run has"),
        (BASE + "draft_device = 'tpu'", "draft_device = 'tpu' is not allowed"),
        (BASE + "target_cores = 'x'", "target_cores = 'x' is not allowed"),
        (BASE + "emulate = {target = {fixed_ms = 1}}", "emulate has no table [draft]"),
        (BASE + "emulate = 'no.toml'", "cannot read emulate file 'no.toml'"),
        (BASE + "[grid]\nmode = ['none']", "allowed: one or more tables [[grid]]"),
        (BASE + "[[grid]]\n", "grid 1 = {} is not allowed; allowed: a list of values"),
        (BASE + "[[grid]]\nseed = []", "grid 1: seed = [] is not allowed"),
        (BASE + "[[grid]]\nseed = 1", "grid 1: seed = 1 is not allowed; allowed: a list"),
        (BASE + "[[grid]]\nseeds = [1]", "unknown option 'seeds' in grid 1"),
        (BASE + "[[grid]]\nseed = [-1]", "seed = -1 is not allowed; allowed: an integer >= 0"),
        (BASE + "[[grid]]\nchat.x = [1]", "grid 1 = 'chat.x' is not allowed"),
        (
            BASE + "[[grid]]\nseed = [1, 2]\n[[grid]]\nseed = [2]",
            "grid 2, seed = 2 is the same run as grid 1, seed = 2; allowed: every run once",
        ),
        (BASE + "[[grid]]\nseed = [0, 0]", "seed = 0 is the same run as grid 1, seed = 0"),
        (BASE + "[quick]\nsed = 1", "unknown option 'sed' in quick"),
        (BASE + "[quick]\nrepeats = 0", "quick.repeats = 0 is not allowed"),
        (BASE + "[report]\nrow = []", "unknown option 'row' in report"),
        (BASE + "[report]\nrows = 'mode'", "report.rows = 'mode' is not allowed"),
        (BASE + "[report]\nrows = ['modus']", "unknown option 'modus' in report"),
        (BASE + "[report]\nbaseline = 'x'", "report.baseline = 'x' is not allowed"),
    ],
)
def test_refused_with_file_field_value_and_what_is_allowed(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        _read(tmp_path, text)
    assert str(error.value).startswith(f"minedraft: experiment '{tmp_path / 'e.toml'}': ")
    assert any(each in str(error.value) for each in message.split("|"))


def test_quick_lists_need_a_grid(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("quick.seed = [1] is not allowed")):
        _read(tmp_path, BASE + "[quick]\nseed = [1]", quick=True)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml': cannot be read"):
        Experiment.from_toml(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem
)
@pytest.mark.parametrize("quick", [False, True])
def test_experiments_of_the_tree_are_read(path: Path, quick: bool) -> None:
    experiment = Experiment.from_toml(path, quick=quick)
    assert experiment.name.removesuffix("-quick" if quick else "") == path.stem
    assert experiment.runs


def test_quick_has_every_mode() -> None:
    experiment = Experiment.from_toml(ROOT / "experiments" / "quick.toml", quick=True)
    emulated = [run for run in experiment.runs if run.emulate is not None]
    real = [run for run in experiment.runs if run.emulate is None]
    assert {run.mode for run in emulated} == set(MODES) - {"vllm-sd"}
    assert {run.mode for run in emulated if run.max_num_seqs == 16} == {"sequential", "two-batch"}
    assert [run.mode for run in real] == list(MODES)
    assert {run.dataset["count"] for run in experiment.runs} == {4}
