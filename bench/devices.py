"""Training and posteriors on the CPU and on the default device of JAX, in one run."""

import jax

from bench.timing import Row
from nsmbayes import TrainingSettings
from nsmbayes.cli import speed
from nsmbayes.experiments import Effort

TINY = {"columns": (1, 2), "datasets": 20, "epochs": 2}


def run(columns: tuple[int, ...] = (1, 8, 20), datasets: int = 1_000, epochs: int | None = None) -> list[Row]:
    """One row per device and measurement; without an accelerator, only for the CPU."""
    effort = None if epochs is None else Effort(training=TrainingSettings(max_epochs=epochs))
    found = {device.platform: device for device in (jax.devices("cpu")[0], jax.devices()[0])}
    rows = []
    for device in found.values():
        measured = speed.on_device(device, columns=columns, datasets=datasets, effort=effort)
        facts = {"device": measured["device"], "kind": measured["kind"], "matrix_gflops": measured["matrix_gflops"]}
        for row in measured["training"]:
            what = f"training, d_x = {row['d_x']}, one simulation in one epoch"
            rows.append(_row(facts, what, 1e-6 * row["us_per_simulation"], row))
        rows += [_row(facts, f"posterior, {row['what']}", row["seconds"], row) for row in measured["posteriors"]]
    return rows


def _row(facts: dict, what: str, seconds: float, detail: dict) -> Row:
    return Row(
        what=f"{facts['device']}: {what}",
        first_s=seconds + detail["compile_s"],
        later_s=seconds,
        repeats=3,
        detail=facts | detail,
    )
