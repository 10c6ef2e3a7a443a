"""Table of the number of simulator calls of each method."""

from collections.abc import Sequence

from nsmbayes.experiments import paper
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import column, display_name, group_by
from nsmbayes.experiments.tables.text import markdown


def budget_table(results: Sequence[ExperimentResult]) -> str:
    """Table of simulator calls, with those in the paper. Empty if they were not counted."""
    cells = [["method", "simulations", "the paper's"]]
    for result in results:
        for label, rows in group_by(result.rows, lambda row: row.method).items():
            used = sorted({int(value) for value in column(rows, "simulations")})
            if used and display_name(label) not in [row[0] for row in cells]:
                theirs = paper.budget(result.experiment.task, label, result.experiment.m)
                span = f"{used[0]:,}" + (f" to {used[-1]:,}" if len(used) > 1 else "")
                cells.append([display_name(label), span, "" if theirs is None else f"{theirs:,}"])
    return markdown(cells) if len(cells) > 1 else ""
