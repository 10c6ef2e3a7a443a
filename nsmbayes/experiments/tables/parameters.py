"""Table of errors of each parameter."""

import numpy as np

from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import display_name, group_by, moments
from nsmbayes.experiments.tables.text import markdown, pair


def parameter_table(result: ExperimentResult) -> str:
    """Table of the mean error of the posterior mean (mean posterior standard deviation) of each parameter."""
    names = result.task.parameter_names
    cells = [["data", "method", *(f"theta_{i} ({name})" for i, name in enumerate(names, 1))]]
    for (data, label), rows in group_by(result.rows, lambda row: (row.data_name, row.method)).items():
        if found := moments(rows):
            means, sds = (np.mean(values, axis=0) for values in zip(*found, strict=True))
            errors = means - result.task.theta_true
            cells.append([data, display_name(label), *map(pair, zip(errors, sds, strict=True))])
    return markdown(cells) if len(cells) > 1 else ""
