"""What an experiment leaves for readers: a summary for the terminal, its figures and its tables."""

from pathlib import Path

from nsmbayes._files import write_text
from nsmbayes.experiments import figures, tables
from nsmbayes.experiments.finished import Finished, Rows, about, grouped, values


def publish(run: Finished, *, progress: bool = False) -> list[Path]:
    """Write tables.md and the figures into the folder of the run's store; return where they are."""
    assert run.store is not None
    page = write_text(run.store.folder / "tables.md", tables.write(run))
    return [page, *figures.draw(run, run.store.folder / "figures", progress=progress)]


def summarise(rows: Rows) -> str:
    """Means and standard deviations, by data and method."""
    width = max(len(row["method"]) for row in rows) + 2
    head = f"{'MSE':>16}{'MMD^2':>16}{'coverage':>10}{'train s':>9}{'infer s':>9}{'oracle MSE':>12}"
    parts = []
    for data, chosen in grouped(rows, lambda row: f"n = {row['n']}, {about(row)}").items():
        lines = [data, f"{'method':<{width}}{head}"]
        for name, mine in grouped(chosen, lambda row: row["method"]).items():
            mse, mmd2 = (tables.spread(values(mine, key)) for key in ("mse", "mmd2_ref"))
            covered, train, infer, oracle = (
                values(mine, key).mean() for key in ("covered", "train_s", "infer_s", "oracle_mse")
            )
            lines.append(f"{name:<{width}}{mse:>16}{mmd2:>16}{covered:>10.0%}{train:>9.1f}{infer:>9.2f}{oracle:>12.2f}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
