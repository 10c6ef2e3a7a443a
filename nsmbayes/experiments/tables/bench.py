"""Table of every method on every kind of outliers."""

import numpy as np

from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import column, display_name, group_by, mean, moments, without_compilation
from nsmbayes.experiments.tables.text import markdown, number, percent, seconds, spread

LEGEND = (
    "MSE: mean over the repeats (standard deviation); beside it over the oracle's mean MSE. 50, 80 and 95 %: how "
    "often regions of that probability hold the truth. Bias: posterior mean minus truth in posterior standard "
    "deviations, averaged over the repeats. Seconds are without compilation where that was noted."
)


def bench_table(result: ExperimentResult) -> str:
    """Table of errors, coverage and bias, by data and method."""
    names, truth = result.task.parameter_names, result.task.theta_true
    cells = [["data", "method", "repeats", "MSE", "MSE / oracle's", "50%", "80%", "95%", "MMD² to oracle"]]
    cells[0] += [f"bias of {name}, sd" for name in names] + ["infer, s"]
    for (data, label), rows in group_by(result.rows, lambda row: (row.data_name, row.method)).items():
        error, best = mean(rows, "mse"), mean(rows, "oracle_mse")
        biases = [(centre - truth) / sd for centre, sd in moments(rows)]
        cells.append(
            [
                data,
                display_name(label),
                str(len(rows)),
                spread(column(rows, "mse")),
                number(error / best) if error is not None and best else "",
                *(percent(mean(rows, field)) for field in ("covered_50", "covered_80", "covered")),
                number(mean(rows, "mmd2_oracle")),
                *([f"{bias:+.1f}" for bias in np.mean(biases, axis=0)] if biases else [""] * len(names)),
                seconds(mean(without_compilation(rows), "infer_s")),
            ]
        )
    return markdown(cells)
