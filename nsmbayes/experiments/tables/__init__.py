"""Tables of experiments in Markdown, with the paper's numbers for comparison."""

from collections.abc import Callable

from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.tables import bench, scores, sweep
from nsmbayes.experiments.tables.bench import bench_table
from nsmbayes.experiments.tables.budgets import budget_table
from nsmbayes.experiments.tables.lines import OURS, PAPERS_CHOICES, THE_PAPERS, Line
from nsmbayes.experiments.tables.parameters import parameter_table
from nsmbayes.experiments.tables.scores import Reasons, disagreements, score_table, score_tables
from nsmbayes.experiments.tables.sweep import sweep_tables

__all__ = [
    "TABLES",
    "LEGENDS",
    "page",
    "score_tables",
    "score_table",
    "disagreements",
    "sweep_tables",
    "bench_table",
    "budget_table",
    "parameter_table",
    "Line",
    "Reasons",
    "OURS",
    "PAPERS_CHOICES",
    "THE_PAPERS",
]


def _all_scores(result: ExperimentResult) -> dict[str, str]:
    more = {
        "Calls of the simulator": budget_table([result]),
        "Error (standard deviation) of each parameter": parameter_table(result),
    }
    return score_tables([result]) | {title: text for title, text in more.items() if text}


TABLES: dict[str, Callable[[ExperimentResult], dict[str, str]]] = {
    "scores": _all_scores,
    "sweep": sweep_tables,
    "bench": lambda result: {"": bench_table(result)},
}
"""Kinds of tables for `Experiment.table`: functions that return tables by title."""

LEGENDS = {"scores": scores.LEGEND, "sweep": sweep.LEGEND, "bench": bench.LEGEND}


def page(result: ExperimentResult) -> str:
    """All tables of one experiment, as a Markdown page."""
    experiment = result.experiment
    parts = [f"# {experiment.name}: {experiment.title}", LEGENDS[experiment.table]]
    for title, text in TABLES[experiment.table](result).items():
        parts += [f"## {title}", text] if title else [text]
    return "\n\n".join(parts) + "\n"
