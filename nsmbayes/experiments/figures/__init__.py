"""Figures of experiments. The first line of each function's docstring is the caption of the figure."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure
from tqdm import tqdm

from nsmbayes.experiments.figures.data import profile, series, summaries, trajectories
from nsmbayes.experiments.figures.posteriors import illustration, marginals, pairs
from nsmbayes.experiments.figures.scores import bench, efficiency, sweep, times
from nsmbayes.experiments.figures.traces import traces
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.plotting.style import save

FIGURES: dict[str, Callable[[ExperimentResult], Figure | None]] = {
    figure.__name__: figure
    for figure in (
        illustration,
        marginals,
        pairs,
        traces,
        trajectories,
        series,
        profile,
        summaries,
        times,
        sweep,
        efficiency,
        bench,
    )
}


def draw(result: ExperimentResult, folder: Path, *, progress: bool = False) -> list[Path]:
    """Draw the figures of an experiment as PNG and SVG; figures of methods that were not run are left out."""
    paths = []
    for name in tqdm(result.experiment.figures, desc="figures", disable=not progress, leave=False):
        if (figure := FIGURES[name](result)) is not None:
            paths.append(save(figure, folder, name))
    return paths
