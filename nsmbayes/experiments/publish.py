"""What an experiment leaves for readers: its figures and its tables."""

from pathlib import Path

from nsmbayes._files import write_text
from nsmbayes.experiments import figures, tables
from nsmbayes.experiments.finished import Finished


def publish(run: Finished, *, progress: bool = False) -> list[Path]:
    """Write tables.md and the figures into the folder of the run's store; return where they are."""
    assert run.store is not None
    page = write_text(run.store.folder / "tables.md", tables.write(run))
    return [page, *figures.draw(run, run.store.folder / "figures", progress=progress)]
