"""The Markdown report of a results folder.

Owns what it says and in which order; the statistics are `estimates`', the plots `plots`'.
The same results give the same report, on a machine with the same libraries.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minedraft.bench import markdown
from minedraft.bench.estimates import Method, choose_method, estimate, estimate_paired_ratio
from minedraft.bench.modes import modes_table
from minedraft.bench.plots import draw_figure, have_matplotlib
from minedraft.bench.run import describe
from minedraft.bench.spec import RunSpec
from minedraft.bench.study import Setting, Study, load_study
from minedraft.errors import ConfigError

_CONVENTIONS = (
    "Two ways to compare, side by side. By the paper's, a mode with two batches has as many "
    "requests in each as the baseline has in its one, so twice as many in flight, and the "
    "drafter's device is not counted. By the fair one, both have as many requests in flight, "
    "and throughput is divided by the devices of target and drafter."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The files of a report; `plots` by figure, none without matplotlib."""

    text: Path
    plots: Mapping[str, Path]


def write_report(folder: Path, out: Path, command: Sequence[str]) -> Report:
    """Write the report of `folder` to `out`, its plots beside it; `command` made it.

    Raises:
        ConfigError: the folder holds no plan, or a damaged or foreign file, or `out` cannot
            be written.
    """
    study, method = load_study(folder), choose_method()
    plots: dict[str, Path] = {}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for figure in study.report.figures if have_matplotlib() else ():
            path = out.with_name(f"{out.stem}-{_file_name(figure)}.png")
            if draw_figure(study, figure, method, path):
                plots[figure] = path
        names = {figure: path.name for figure, path in plots.items()}
        out.write_text(render(study, method, names, command), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"minedraft: cannot write {str(out)!r}: {error.strerror}") from error
    return Report(text=out, plots=plots)


def render(study: Study, method: Method, plots: Mapping[str, str], command: Sequence[str]) -> str:
    """The report's text; `plots` are file names by figure."""
    lines = [f"# {study.name}", ""]
    lines += [study.description, ""] if study.description else []
    lines += [*_state(study, method), ""]
    for figure in study.report.figures:
        lines += [f"## {figure}", "", *_figure_table(study, figure, method), ""]
        lines += [f"![{figure}]({plots[figure]})", ""] if figure in plots else []
    if modes := modes_table(study, method):
        lines += ["## Modes side by side", "", *modes, ""]
    if conventions := _convention_rows(study, method):
        lines += ["## Both conventions", "", _CONVENTIONS, "", *conventions, ""]
    if outputs := _outputs(study):
        lines += ["## Outputs", "", *outputs, ""]
    lines += ["## Where the results come from", "", *_provenance(study, command), ""]
    return "\n".join(lines)


def _state(study: Study, method: Method) -> list[str]:
    done = sum(len(each.by_repeat) for each in study.settings)
    repeats = sorted({len(each.by_repeat) for each in study.settings})
    lines = [f"{done} of {done + len(study.missing)} runs have a result."]
    if any(each.emulated and not each.spec.has_virtual_clock for each in study.settings):
        lines += ["", "**Emulated**: times of device passes are modelled, all else is real."]
    if any(each.spec.has_virtual_clock for each in study.settings):
        lines += [
            "",
            "**Emulated by a virtual clock**: times of device passes are modelled, and nothing "
            "else takes any: what scheduling, transport and sampling cost is not in these "
            "figures, and a repeat gives the same.",
        ]
    if repeats == [1]:
        lines += ["", "Each setting was run once: there are no intervals."]
    elif repeats:
        span = f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"
        lines += [
            "",
            f"Medians of {span} repeats with 95 % intervals ({method.name}); ratios are paired "
            "by repeat, their intervals are of logarithms.",
        ]
    if study.strangers:
        lines += ["", f"{study.strangers} results in the folder are not in the plan: not shown."]
    if not have_matplotlib():
        lines += ["", "No plots: matplotlib is missing (minedraft[plot])."]
    for failure in study.failures:
        spec, error = RunSpec.from_mapping(failure.run), failure.error.splitlines()[0]
        lines += ["", f"Failed: {describe(spec)}: {error}"]
    return lines


def _figure_table(study: Study, figure: str, method: Method) -> list[str]:
    shown = [each for each in study.settings if each.values(figure) or each.words(figure)]
    if not shown:
        return ["No result has this figure."]
    baseline = study.report.baseline
    head = [*study.labels, "device", "median", "95 %", "n"]
    head += [] if baseline is None else [f"ratio to {baseline}"]
    rows = []
    for setting in shown:
        found = estimate(list(setting.values(figure).values()), method)
        row = [*_label_cells(study, setting), setting.device]
        if found is None:
            row += [", ".join(setting.words(figure)), markdown.NOTHING, str(len(setting.by_repeat))]
        else:
            row += [markdown.middle(found), markdown.interval(found), str(found.count)]
        rows.append(row + ([] if baseline is None else [_ratio(study, setting, figure, method)]))
    return [*markdown.table(head, rows), "", *_commands(shown)]


def _ratio(study: Study, setting: Setting, figure: str, method: Method) -> str:
    return _paired(setting, study.baseline(setting), figure, method)


def _paired(setting: Setting, base: Setting | None, figure: str, method: Method) -> str:
    if base is None:
        return markdown.NOTHING
    own, others = setting.values(figure), base.values(figure)
    pairs = [(value, others[repeat]) for repeat, value in own.items() if repeat in others]
    return markdown.ratio(estimate_paired_ratio(pairs, method))


def _convention_rows(study: Study, method: Method) -> list[str]:
    plan, rows, shown = study.report, [], []
    for setting in study.settings:
        paper = _paired(setting, study.batch_baseline(setting), plan.throughput, method)
        fair = _paired(setting, study.baseline(setting), plan.per_device, method)
        if (paper, fair) != (markdown.NOTHING, markdown.NOTHING):
            rows.append([*_label_cells(study, setting), setting.device, paper, fair])
            shown.append(setting)
    if not rows:
        return []
    head = [
        *study.labels,
        "device",
        f"paper's: {plan.throughput}, same requests per batch, one more device",
        f"fair: {plan.per_device}, same requests in flight",
    ]
    note = f"Ratios to {plan.baseline}."
    return [note, "", *markdown.table(head, rows), "", *_commands(shown)]


def _outputs(study: Study) -> list[str]:
    """Whether greedy output is the baseline's, as it is to be in fp32."""
    rows = []
    for setting in study.settings:
        base = study.baseline(setting)
        if base is None or setting.spec.temperature > 0:
            continue
        pairs = [
            (result.outcome.tokens_sha256, base.by_repeat[repeat].outcome.tokens_sha256)
            for repeat, result in setting.by_repeat.items()
            if repeat in base.by_repeat
        ]
        known = [own == other for own, other in pairs if own and other]
        if known:
            rows.append([*_label_cells(study, setting), f"{sum(known)} of {len(known)}"])
    if not rows:
        return []
    head = [*study.labels, f"repeats with the tokens of {study.report.baseline}"]
    return markdown.table(head, rows)


def _label_cells(study: Study, setting: Setting) -> list[str]:
    return [markdown.plain(setting.spec.value(path)) for path in study.labels]


def _commands(settings: Sequence[Setting]) -> list[str]:
    """The commands that measured what a table shows."""
    commands = {
        shlex.join(result.provenance.command)
        for setting in settings
        for result in setting.by_repeat.values()
    }
    return ["Measured by:", "", "```bash", *sorted(commands), "```"]


def _provenance(study: Study, command: Sequence[str]) -> list[str]:
    found = [
        result.provenance for setting in study.settings for result in setting.by_repeat.values()
    ]
    rows = [
        ("versions", {f"{name} {each}" for one in found for name, each in one.versions.items()}),
        ("commit", {_commit(one.git_commit, one.git_dirty) for one in found}),
        ("platform", {one.platform for one in found}),
        ("python", {one.python for one in found}),
        ("CPU", {f"{one.cpu_count} cores, {one.cpu_model or 'unknown model'}" for one in found}),
        ("devices", {", ".join(one.devices) or "no GPU" for one in found}),
    ]
    lines = [f"- {name}: {'; '.join(sorted(values))}" for name, values in rows if values]
    if found:
        starts = sorted(one.started_utc for one in found)
        lines.append(f"- started: {starts[0]} to {starts[-1]} (UTC)")
        lines.append(f"- measured for {sum(one.duration_s for one in found):.0f} s in all")
    return [*lines, "", "This report was made by:", "", "```bash", shlex.join(command), "```"]


def _commit(commit: str | None, dirty: bool | None) -> str:
    if commit is None:
        return "not from a git tree"
    return f"{commit} with changes" if dirty else commit


def _file_name(figure: str) -> str:
    return "".join(each if each.isalnum() or each in "-_" else "-" for each in figure)
