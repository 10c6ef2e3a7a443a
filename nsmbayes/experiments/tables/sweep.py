"""Tables of scores along the axis of a sweep."""

import numpy as np

from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import column, display_name, group_by, mean, once_per_data_set, standard_error
from nsmbayes.experiments.spec import AXES
from nsmbayes.experiments.tables.text import markdown, number, percent, spread
from nsmbayes.tasks import NONE

LEGEND = (
    "MSE: mean over the repeats (standard error). Coverage: of the 95 % region. sd / NLE's: geometric mean over "
    "repeats and parameters of the posterior standard deviation over NLE's on the same clean data."
)


def sweep_tables(result: ExperimentResult) -> dict[str, str]:
    """Tables of MSE (standard error) and coverage along the axis, one for each panel."""
    axis, tables = result.experiment.axis, {}
    for panel, rows in group_by(result.rows, result.panel).items():
        names = list(dict.fromkeys(map(result.method_name, rows)))
        ratios = NONE in {row.contamination for row in rows} and axis == "n"
        others = [name for name in names if ratios and name != "nle"]
        head = [AXES[axis], "repeats", "oracle's MSE"]
        head += [f"{display_name(name)}: {what}" for name in names for what in ("MSE", "coverage")]
        cells = [head + [f"{display_name(name)}: sd / NLE's" for name in others]]
        for position, here in sorted(group_by(rows, result.position).items()):
            by_name = group_by(here, result.method_name)
            line = [_position(axis, position), str(len({row.seed for row in here}))]
            line.append(number(mean(once_per_data_set(here), "oracle_mse")))
            for name in names:
                mine = by_name.get(name, [])
                line += [spread(column(mine, "mse"), standard_error), percent(mean(mine, "covered"))]
            found = result.sd_ratios(here) if others else {}
            line += [number(float(np.exp(np.log(found[name]).mean()))) if name in found else "" for name in others]
            cells.append(line)
        tables[panel] = markdown(cells)
    return tables


def _position(axis: str, position: float) -> str:
    return f"{position:.0%}" if axis == "fraction" else f"{position:,g}" if position < 1e6 else f"{position:g}"
