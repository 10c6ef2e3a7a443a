"""All benchmarks by name, for the command line and the tests."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from bench import (
    amortised,
    batch,
    budget,
    calibration,
    campaigns,
    columns,
    conj_training,
    devices,
    explore,
    general,
    held_out,
    identity,
    influence,
    large,
    mcd,
    memory,
    observations,
    parameters,
    sbi,
    simulators,
    surrogate,
    throughput,
)
from bench.timing import Row


class Benchmark(NamedTuple):
    """A function with the full sizes as defaults, and tiny sizes to check that it runs."""

    name: str
    summary: str
    run: Callable[..., list[Row]]
    tiny: dict[str, Any]
    missing: str
    """A message about missing requirements; an empty string if there are none."""


def _benchmark(name: str, module: ModuleType) -> Benchmark:
    missing = getattr(module, "MISSING", "")
    return Benchmark(name, (module.__doc__ or "").strip(), module.run, module.TINY, missing)


BENCHMARKS = {
    name: _benchmark(name, module)
    for name, module in {
        "conj": conj_training,
        "calibration": calibration,
        "columns": columns,
        "parameters": parameters,
        "budget": budget,
        "large": large,
        "observations": observations,
        "batch": batch,
        "mcd": mcd,
        "simulators": simulators,
        "amortised": amortised,
        "memory": memory,
        "influence": influence,
        "general": general,
        "identity": identity,
        "surrogate": surrogate,
        "campaigns": campaigns,
        "devices": devices,
        "throughput": throughput,
        "explore": explore,
        "sbi": sbi,
        "held-out": held_out,
    }.items()
}
