"""How a call is timed: the first one apart, later ones on new data, contenders in turn."""

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
    """Median of the processor time of later calls, summed over threads: less distorted by a busy machine."""
    repeats: int
    detail: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def side_by_side(contenders: Mapping[str, Callable[[int], Any]], *, repeats: int) -> list[Row]:
    """Time each contender, a function of the repeat's number that fetches its data by it.

    First calls start from empty compilation caches, so that none profits from what another compiled. The later calls
    of the contenders take turns, so that a disturbance of the machine affects all of them alike. Contenders must return
    NumPy arrays or numbers: JAX returns before it has finished.
    """
    first: dict[str, float] = {}
    for name, call in contenders.items():
        jax.clear_caches()
        parallel.clear_cache()
        first[name] = timed(call, 0)[0]
    for call in contenders.values():
        call(0)  # compile again what clearing the caches for the next contender took away
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
