"""Output of an experiment: a summary for the terminal, tables and figures."""

from collections.abc import Sequence
from pathlib import Path

from nsmbayes._internal.files import write_text
from nsmbayes.errors import InputError
from nsmbayes.experiments import figures, tables
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import Row, column, group_by, mean
from nsmbayes.experiments.tables.text import spread


def render(result: ExperimentResult, *, progress: bool = False) -> list[Path]:
    """Write tables.md and the figures to the folder of the result's store; return their paths."""
    if result.store is None:
        raise InputError("`result` must have a store: figures are made of draws, which the rows do not hold.")
    page = write_text(result.store.folder / "tables.md", tables.page(result))
    return [page, *figures.draw(result, result.store.folder / "figures", progress=progress)]


def summarise(rows: Sequence[Row]) -> str:
    """Format means and standard deviations by data and method."""
    width = max(len(row.method) for row in rows) + 2
    head = f"{'MSE':>16}{'MMD^2':>16}{'coverage':>10}{'train s':>9}{'infer s':>9}{'oracle MSE':>12}"
    parts = []
    for data, chosen in group_by(rows, lambda row: f"n = {row.n}, {row.data_name}").items():
        lines = [data, f"{'method':<{width}}{head}"]
        for name, mine in group_by(chosen, lambda row: row.method).items():
            mse, mmd2 = (spread(column(mine, field)) for field in ("mse", "mmd2_ref"))
            covered, train = _cell(mine, "covered", ">10.0%"), _cell(mine, "train_s", ">9.1f")
            infer, oracle = _cell(mine, "infer_s", ">9.2f"), _cell(mine, "oracle_mse", ">12.2f")
            lines.append(f"{name:<{width}}{mse:>16}{mmd2:>16}{covered}{train}{infer}{oracle}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(rows: Sequence[Row], field: str, spec: str) -> str:
    """The mean of a field; nan if no row has it."""
    value = mean(rows, field)
    return format(float("nan") if value is None else value, spec)
