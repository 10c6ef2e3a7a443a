"""Timing of calls: the first call separately, later calls on new data, contenders in turn."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import numpy as np

from nsmbayes._internal import parallel


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a result."""

    what: str
    first_s: float
    """Wall time of the first call, compilation included."""
    later_s: float
    """Median wall time of later calls, on new data."""
    later_cpu_s: float | None = None
    """Median processor time of later calls, summed over threads, which is less distorted by a busy machine."""
    repeats: int
    detail: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def side_by_side(contenders: Mapping[str, Callable[[int], Any]], *, repeats: int) -> list[Row]:
    """Time each contender, a function of the number of the repeat, which selects the data.

    First calls start from empty compilation caches, so that no contender profits from another's compilation. The
    contenders take turns in later calls, so that disturbances of the machine affect all of them equally. Contenders
    must return NumPy arrays or numbers, because JAX returns before its computations are finished.
    """
    first: dict[str, float] = {}
    for name, call in contenders.items():
        jax.clear_caches()
        parallel.clear_cache()
        first[name] = timed(call, 0)[0]
    for call in contenders.values():
        call(0)  # compile again, since the caches were cleared for the next contender
    later = {name: [] for name in contenders}
    for repeat in range(1, repeats + 1):
        for name, call in contenders.items():
            later[name].append(timed(call, repeat))
    return [
        Row(
            what=name,
            first_s=first[name],
            later_s=float(np.median([wall for wall, _ in later[name]])),
            later_cpu_s=float(np.median([cpu for _, cpu in later[name]])),
            repeats=repeats,
            detail={"fastest_s": min(wall for wall, _ in later[name]), "slowest_s": max(w for w, _ in later[name])},
        )
        for name in contenders
    ]


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[float, float]:
    """Wall time and processor time of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call(*arguments)
    return time.perf_counter() - wall, time.process_time() - cpu
