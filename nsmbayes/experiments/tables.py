"""Tables of finished experiments in Markdown, beside what the paper prints."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from nsmbayes.experiments import paper
from nsmbayes.experiments.finished import (
    AXES,
    Finished,
    Rows,
    about,
    grouped,
    mean,
    once_a_data_set,
    sd_ratios,
    shown,
    standard_error,
    uncompiled,
    values,
)
from nsmbayes.experiments.paper import Printed
from nsmbayes.methods import METHODS
from nsmbayes.tasks import NONE

OURS, PAPERS_CHOICES, THE_PAPERS = "ours", "ours, `--preset paper`", "the paper's"
LEGEND = (
    "Numbers are means (standard deviations) over the repeats, seconds means. MSE is the posterior expectation of the "
    "squared distance to the true parameters; coverage is how often the 95 % region holds them; converged is how often "
    "the chains met our criterion. β at floor is how often the paper's calibration ended at the smallest learning rate "
    "it may choose, short of its target; coverage is then no sign of calibration. MMD² is taken to the posterior given "
    "the data before contamination. The oracle is the best posterior given the observations that were left alone: "
    "under the exact likelihood where the task has one, else NLE's. The first posterior that a process builds includes "
    "the time of compilation, which has a column of its own where it was noted. A number in the last column says that "
    "MSE or MMD² is more than two of the paper's standard deviations from the paper's, or coverage more than 25 "
    "points; where we know the reason, it is below the table."
)


@dataclass(frozen=True)
class Line:
    """What one method reached with one set of choices, and what the paper prints for it."""

    label: str
    choices: str
    rows: Rows
    method: str = ""
    printed: Printed | None = None
    same_reference: bool = True
    """Whether MMD² is taken to the posterior that the paper takes it to."""
    reason: str | None = None
    """Why it disagrees with the paper; None if nobody was asked."""
    floor: float | None = None
    """The smallest learning rate that the calibration may choose."""


class Column(NamedTuple):
    """A column: what it says about a line of ours, and about the paper's."""

    title: str
    ours: Callable[[Line], str]
    theirs: Callable[[Printed], str] = lambda _: ""


def _score(key: str) -> Column:
    """Mean and standard deviation."""
    title = {"mse": "MSE", "mmd2_ref": "MMD²"}[key]
    return Column(title, lambda line: spread(values(line.rows, key)), lambda printed: _pair(getattr(printed, key)))


def _share(title: str, key: str) -> Column:
    return Column(title, lambda line: _percent(mean(line.rows, key)))


def _at_floor(line: Line) -> float | None:
    """How often the calibration gave up: at the smallest learning rate, short of its target."""
    betas = values(line.rows, "beta")
    return float((betas <= line.floor * (1 + 1e-6)).mean()) if line.floor is not None and betas.size else None


_COVERAGE = Column(
    "coverage", lambda line: _percent(mean(line.rows, "covered")), lambda printed: _percent(printed.coverage)
)
_TRAIN = Column(
    "train, s", lambda line: _seconds(mean(line.rows, "train_s")), lambda printed: _seconds(printed.train_s)
)
_INFER = Column(
    "infer, s",
    lambda line: _seconds(mean([row for row in line.rows if not row.get("compiled")], "infer_s")),
    lambda printed: _seconds(printed.infer_s),
)
_INFER_FIRST = Column(
    "with compilation, s", lambda line: _seconds(mean([row for row in line.rows if row.get("compiled")], "infer_s"))
)
_SCORES = (
    Column("repeats", lambda line: str(len(line.rows))),
    _score("mse"),
    _score("mmd2_ref"),
    _COVERAGE,
    Column("β at floor", lambda line: _percent(_at_floor(line))),
    _share("converged", "converged"),
    _TRAIN,
    _INFER,
    _INFER_FIRST,
)
_KINDS = (
    Column("amortised", lambda line: METHODS[line.method].amortised if line.method else ""),
    Column("guarantee", lambda line: "yes" if line.method in paper.GUARANTEED else "no" if line.method else ""),
)


def table(lines: Sequence[Line], *, columns: Sequence[Column] = _SCORES, more: Iterable[Line] = ()) -> str:
    """Lines under one another, each beside the paper's, and below them where and why they disagree with the paper.

    Columns that would be empty are left out. `more` are lines of other things than methods.
    """
    notes: list[str] = []
    cells = [["method", "choices", *(column.title for column in columns), ""]]
    for group in grouped(map(_as_row, lines), lambda row: row["group"]).values():
        same = [row["line"] for row in group]
        for line in same:
            found = disagreements(line)
            if line.reason is not None and bool(found) != bool(line.reason):
                raise ValueError(
                    f"{line.label}, {line.choices}: disagrees in {found}, but the reason is {line.reason!r}."
                )
            if found:
                why = f": {line.reason}" if line.reason else ""
                notes.append(f"{len(notes) + 1}. {line.label}, {line.choices} ({', '.join(found)}){why}.")
            number = str(len(notes)) if found else ""
            cells.append([line.label, line.choices, *(column.ours(line) for column in columns), number])
        if (printed := same[-1].printed) is not None:
            cells.append([same[0].label, THE_PAPERS, *(column.theirs(printed) for column in columns), ""])
    cells += [[line.label, line.choices, *(column.ours(line) for column in columns), ""] for line in more]
    return markdown(cells) + ("\n\n" + "\n".join(notes) if notes else "")


def _as_row(line: Line) -> dict[str, Any]:
    return {"line": line, "group": line.label if line.printed is None else id(line.printed)}


def disagreements(line: Line) -> list[str]:
    """The scores that are more than two printed standard deviations off, or 25 points of coverage."""
    if line.printed is None:
        return []
    keys = {"MSE": "mse"} | ({"MMD²": "mmd2_ref"} if line.same_reference else {})
    found = []
    for name, key in keys.items():
        printed, ours = getattr(line.printed, key), mean(line.rows, key)
        if printed is not None and ours is not None and abs(ours - printed[0]) > 2 * printed[1]:
            found.append(name)
    coverage = mean(line.rows, "covered")
    if line.printed.coverage is not None and coverage is not None and abs(coverage - line.printed.coverage) > 0.25:
        found.append("coverage")
    return found


Reasons = Mapping[tuple[str, str, str], str]


def scores(runs: Sequence[Finished], reasons: Reasons | None = None) -> dict[str, str]:
    """Scores by the data they were reached on; several runs of an experiment, with other presets, side by side.

    With `reasons`, by (experiment, label of the method, preset), every disagreement with the paper needs one, and
    every reason a disagreement.
    """
    tables = {}
    for name in dict.fromkeys(about(row) for run in runs for row in run.rows):
        lines, oracle = [], []
        for run in runs:
            printed = paper.TABLES.get(run.experiment.name, {}) if _is_main(run, name) else {}
            rows = [row for row in run.rows if about(row) == name]
            oracle += once_a_data_set([row for row in rows if row.get("oracle_mse") is not None])
            for label, mine in grouped(rows, lambda row: row["method"]).items():
                line = Line(
                    shown(label),
                    PAPERS_CHOICES if run.preset == "paper" else OURS,
                    mine,
                    run.methods[label]["method"],
                    printed.get(label),
                    same_reference=run.preset == "paper" or run.task.name != "gnk",
                    floor=paper.smallest_beta(run.task.name, run.methods[label]) if run.preset == "paper" else None,
                )
                if reasons is not None:
                    key = (run.experiment.name, label, run.preset)
                    line = replace(line, reason=reasons.get(key, "") if line.printed else "")
                lines.append(line)
        order = list(dict.fromkeys(line.label for line in lines))
        lines.sort(key=lambda line: order.index(line.label))
        best = {row["seed"]: row["oracle_mse"] for row in reversed(oracle)}  # if they differ, that of the first run
        more = [Line("oracle", "", [{"mse": value} for value in best.values()])] if best else []
        columns = (*_SCORES, *_KINDS) if runs[0].experiment.name == "gnk" else _SCORES
        tables[name] = table(lines, columns=columns, more=more)
    return tables


def _is_main(run: Finished, name: str) -> bool:
    """Whether the data so called are those that the experiment is about."""
    first = run.experiment.data[0].contamination
    return any(about(row) == name and row["contamination"] == first for row in run.rows)


def budgets(runs: Sequence[Finished]) -> str:
    """Calls of the simulator, beside the paper's. Empty if they were not counted."""
    cells = [["method", "simulations", "the paper's"]]
    for run in runs:
        allowed = {name: given.budget for name, given in paper.ALLOWANCES.get(run.task.name, {}).items()}
        for label, rows in grouped(run.rows, lambda row: row["method"]).items():
            used = sorted({int(value) for value in values(rows, "simulations")})
            if used and shown(label) not in [row[0] for row in cells]:
                theirs = allowed.get(label, run.experiment.m if label in paper.TABLES["gnk"] else None)
                span = f"{used[0]:,}" + (f" to {used[-1]:,}" if len(used) > 1 else "")
                cells.append([shown(label), span, "" if theirs is None else f"{theirs:,}"])
    return markdown(cells) if len(cells) > 1 else ""


def sweep(run: Finished) -> dict[str, str]:
    """MSE (standard error) and coverage along the axis, by what else the data differ in."""
    tables = {}
    for panel, rows in grouped(run.rows, run.panel).items():
        names = list(dict.fromkeys(map(run.method, rows)))
        ratios = NONE in {row["contamination"] for row in rows} and run.experiment.axis == "n"
        others = [name for name in names if ratios and name != "nle"]
        head = [AXES[run.experiment.axis], "repeats", "oracle's MSE"]
        head += [f"{shown(name)}: {what}" for name in names for what in ("MSE", "coverage")]
        cells = [head + [f"{shown(name)}: sd / NLE's" for name in others]]
        for place, here in sorted(grouped(rows, run.place).items()):
            by_name = grouped(here, run.method)
            line = [_value(run.experiment.axis, place), str(len({row["seed"] for row in here}))]
            line.append(_number(mean(once_a_data_set(here), "oracle_mse")))
            for name in names:
                mine = by_name.get(name, [])
                line += [spread(values(mine, "mse"), standard_error), _percent(mean(mine, "covered"))]
            found = sd_ratios(run, here) if others else {}
            line += [_number(float(np.exp(np.log(found[name]).mean()))) if name in found else "" for name in others]
            cells.append(line)
        tables[panel] = markdown(cells)
    return tables


def bench(run: Finished) -> str:
    """Every method on every kind of outliers."""
    names = run.task.parameter_names
    cells = [["data", "method", "repeats", "MSE", "MSE / oracle's", "50%", "80%", "95%", "MMD² to oracle"]]
    cells[0] += [f"bias of {name}, sd" for name in names] + ["infer, s"]
    for (data, label), rows in grouped(run.rows, lambda row: (about(row), row["method"])).items():
        error, best = mean(rows, "mse"), mean(rows, "oracle_mse")
        located = _located(rows)
        bias = [(np.array(row["mean"]) - run.task.theta_true) / np.array(row["sd"]) for row in located]
        cells.append(
            [
                data,
                shown(label),
                str(len(rows)),
                spread(values(rows, "mse")),
                _number(error / best) if error is not None and best else "",
                *(_percent(mean(rows, key)) for key in ("covered_50", "covered_80", "covered")),
                _number(mean(rows, "mmd2_oracle")),
                *([f"{value:+.1f}" for value in np.mean(bias, axis=0)] if located else [""] * len(names)),
                _seconds(mean(uncompiled(rows), "infer_s")),
            ]
        )
    return markdown(cells)


def parameters(run: Finished) -> str:
    """Mean error of the posterior mean (mean posterior standard deviation) of each parameter."""
    names = run.task.parameter_names
    cells = [["data", "method", *(f"theta_{i} ({name})" for i, name in enumerate(names, 1))]]
    for (data, label), rows in grouped(run.rows, lambda row: (about(row), row["method"])).items():
        if located := _located(rows):
            error = np.mean([row["mean"] for row in located], axis=0) - run.task.theta_true
            sd = np.mean([row["sd"] for row in located], axis=0)
            cells.append([data, shown(label), *map(_pair, zip(error, sd, strict=True))])
    return markdown(cells) if len(cells) > 1 else ""


def _located(rows: Rows) -> Rows:
    """Rows that say where the posterior is."""
    return [row for row in rows if row.get("mean") is not None and row.get("sd") is not None]


def _all_scores(run: Finished) -> dict[str, str]:
    found = scores([run])
    for title, text in (
        ("Calls of the simulator", budgets([run])),
        ("Error (standard deviation) of each parameter", parameters(run)),
    ):
        found |= {title: text} if text else {}
    return found


TABLES: dict[str, Callable[[Finished], dict[str, str]]] = {
    "scores": _all_scores,
    "sweep": sweep,
    "bench": lambda run: {"": bench(run)},
}


LEGENDS = {
    "scores": LEGEND,
    "sweep": (
        "MSE: mean over the repeats (standard error). Coverage: of the 95 % region. sd / NLE's: geometric mean over "
        "repeats and parameters of the posterior standard deviation over NLE's on the same clean data."
    ),
    "bench": (
        "MSE: mean over the repeats (standard deviation); beside it over the oracle's mean MSE. 50, 80 and 95 %: how "
        "often regions of that probability hold the truth. Bias: posterior mean minus truth in posterior standard "
        "deviations, averaged over the repeats. Seconds are without compilation where that was noted."
    ),
}


def write(run: Finished) -> str:
    """All tables of one experiment, as a page."""
    parts = [f"# {run.experiment.name}: {run.experiment.title}", LEGENDS[run.experiment.table]]
    for title, text in TABLES[run.experiment.table](run).items():
        parts += [f"## {title}", text] if title else [text]
    return "\n\n".join(parts) + "\n"


def markdown(cells: list[list[str]]) -> str:
    """A table whose first row is its head. Columns with nothing below the head are left out."""
    kept = [i for i, column in enumerate(zip(*cells, strict=True)) if any(column[1:])]
    head, *body = ([row[i] for i in kept] for row in cells)
    lines = [head, ["---"] * len(kept), *body]
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- ", "|---").replace("--- |", "---|") for line in lines)


def _deviation(column: np.ndarray) -> float:
    return float(column.std(ddof=1))


def spread(column: np.ndarray, of: Callable[[np.ndarray], float] = _deviation) -> str:
    """The mean, and in parentheses what there is to say of the spread of two and more values."""
    if column.size < 2:
        return _number(float(column[0])) if column.size else ""
    return _pair((float(column.mean()), of(column)))


def _pair(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{pair[0]:.2f} ({pair[1]:.2f})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    """Empty below a millisecond: methods that are not amortised train nothing beforehand."""
    if value is None or value < 1e-3:
        return ""
    return f"{value:.1g}" if value < 0.1 else f"{value:.{0 if value >= 10 else 1}f}"


def _value(axis: str, place: float) -> str:
    return f"{place:.0%}" if axis == "fraction" else f"{place:,g}" if place < 1e6 else f"{place:g}"
