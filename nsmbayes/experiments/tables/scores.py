"""Tables of scores by method, with those of the paper, and reasons for disagreements."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from nsmbayes.experiments import paper
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import Row, display_name, group_by, mean, once_per_data_set
from nsmbayes.experiments.tables.lines import OURS, PAPERS_CHOICES, PROPERTIES, SCORES, THE_PAPERS, Column, Line
from nsmbayes.experiments.tables.text import markdown

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

Reasons = Mapping[tuple[str, str, str], str]
"""Reasons for disagreements with the paper, by (experiment, label of the method, preset)."""


def score_tables(results: Sequence[ExperimentResult], reasons: Reasons | None = None) -> dict[str, str]:
    """Tables by kind of data; several results of an experiment, with different presets, are combined.

    With `reasons`, every disagreement with the paper must have a reason, and every reason a disagreement.
    """
    tables = {}
    for data in dict.fromkeys(row.data_name for result in results for row in result.rows):
        lines, oracle = [], []
        for result in results:
            rows = [row for row in result.rows if row.data_name == data]
            oracle += once_per_data_set(row for row in rows if row.oracle_mse is not None)
            lines += _lines(result, rows, reasons)
        order = list(dict.fromkeys(line.label for line in lines))
        lines.sort(key=lambda line: order.index(line.label))
        columns = (*SCORES, *PROPERTIES) if results[0].experiment.method_properties else SCORES
        tables[data] = score_table(lines, columns=columns, more=_oracle_line(oracle))
    return tables


def _lines(result: ExperimentResult, rows: Sequence[Row], reasons: Reasons | None) -> list[Line]:
    """One line per method, for one kind of data."""
    experiment, lines = result.experiment, []
    is_main = any(row.contamination == experiment.data[0].contamination for row in rows)
    printed = paper.TABLES.get(experiment.name, {}) if is_main else {}
    for label, mine in group_by(rows, lambda row: row.method).items():
        method = result.methods[label]
        line = Line(
            display_name(label),
            PAPERS_CHOICES if result.preset == "paper" else OURS,
            mine,
            method.method,
            printed.get(label),
            same_reference=not experiment.exact_reference,
            floor=paper.smallest_beta(experiment.task, method) if result.preset == "paper" else None,
        )
        if reasons is not None:
            reason = reasons.get((experiment.name, label, result.preset), "") if line.printed else ""
            line = replace(line, reason=reason)
        lines.append(line)
    return lines


def _oracle_line(rows: Sequence[Row]) -> list[Line]:
    """The line of the oracle, if rows have it; if results differ, that of the first result."""
    best = {row.seed: _as_oracle(row) for row in reversed(rows)}
    return [Line("oracle", "", list(best.values()))] if best else []


def _as_oracle(row: Row) -> Row:
    assert row.oracle_mse is not None
    return Row(
        method="oracle", repeat=row.repeat, seed=row.seed, contamination=row.contamination, n=row.n, mse=row.oracle_mse
    )


def score_table(lines: Sequence[Line], *, columns: Sequence[Column] = SCORES, more: Iterable[Line] = ()) -> str:
    """Table of lines, each followed by that of the paper, with disagreements and their reasons below the table.

    Empty columns are left out. `more` are additional lines that are not methods.
    """
    notes: list[str] = []
    cells = [["method", "choices", *(column.title for column in columns), ""]]
    for group in group_by(lines, _comparable).values():
        for line in group:
            found = disagreements(line)
            if line.reason is not None and bool(found) != bool(line.reason):
                raise ValueError(
                    f"{line.label}, {line.choices}: disagrees in {found}, but the reason is {line.reason!r}."
                )
            if found:
                why = f": {line.reason}" if line.reason else ""
                notes.append(f"{len(notes) + 1}. {line.label}, {line.choices} ({', '.join(found)}){why}.")
            cells.append(_cells(line, columns, str(len(notes)) if found else ""))
        if (printed := group[-1].printed) is not None:
            cells.append([group[0].label, THE_PAPERS, *(column.theirs(printed) for column in columns), ""])
    cells += [_cells(line, columns) for line in more]
    return markdown(cells) + ("\n\n" + "\n".join(notes) if notes else "")


def _comparable(line: Line) -> Hashable:
    """Key that is equal for lines that are compared with the same line of the paper."""
    return line.label if line.printed is None else id(line.printed)


def _cells(line: Line, columns: Sequence[Column], note: str = "") -> list[str]:
    return [line.label, line.choices, *(column.ours(line) for column in columns), note]


def disagreements(line: Line) -> list[str]:
    """Scores that differ from the paper by more than two printed standard deviations, or 25 points of coverage."""
    if line.printed is None:
        return []
    pairs = {"MSE": (line.printed.mse, "mse")}
    if line.same_reference:
        pairs["MMD²"] = line.printed.mmd2_ref, "mmd2_ref"
    found = []
    for name, (printed, field) in pairs.items():
        ours = mean(line.rows, field)
        if printed is not None and ours is not None and abs(ours - printed[0]) > 2 * printed[1]:
            found.append(name)
    coverage = mean(line.rows, "covered")
    if line.printed.coverage is not None and coverage is not None and abs(coverage - line.printed.coverage) > 0.25:
        found.append("coverage")
    return found
