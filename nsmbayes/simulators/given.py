"""Simulations at given parameters, in this process or elsewhere."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from tqdm.auto import tqdm

from nsmbayes._internal import checks
from nsmbayes.calls import RowStatus, Work
from nsmbayes.calls.executors import outcomes
from nsmbayes.errors import SimulationError
from nsmbayes.simulators.base import Simulator

_BATCHES = 100


def simulate_at(
    simulator: Simulator,
    theta: Float[np.ndarray, "m d_theta"],
    *,
    seed: int,
    executor: Any = None,
    timeout: float | None = None,
    progress: bool = True,
) -> Float[np.ndarray, "m d_x"]:
    """One simulation for each row of theta; row i depends on the seed, on i and on its theta alone.

    `executor` and `timeout` are those of `nsmbayes.simulate`. A row that fails is an error, since a likelihood that was
    learnt without the rows that fail is another one.

    Example:
        >>> import nsmbayes as nsm
        >>> simulator = nsm.NumpySimulator(lambda rng, theta: theta + rng.normal(size=1))
        >>> simulate_at(simulator, np.zeros((5, 1)), seed=0, progress=False).shape
        (5, 1)
    """
    m, seed = len(theta), checks.integer(seed, "seed")
    caller = simulator.caller()
    size = -(-max(1, m // _BATCHES) // caller.calls_of) * caller.calls_of

    def works() -> Iterator[Work]:
        for start in range(0, m, size):
            stop = min(start + size, m)
            padded = theta[np.minimum(np.arange(start, start + size), m - 1)]  # calls are of whole batches
            yield Work(seed, start, stop, start, padded)

    x: np.ndarray | None = None
    reasons: Counter[str] = Counter()
    with tqdm(total=m, desc="simulating", unit="row", disable=not progress, delay=1.0) as bar:
        for _, outcome in outcomes(caller, works(), executor, timeout):
            reasons.update(outcome.reasons.values())
            if (outcome.status == RowStatus.VALID).all():
                if x is None:
                    x = np.empty((m, outcome.x.shape[1]))
                x[outcome.start : outcome.start + len(outcome.x)] = outcome.x
            bar.update(len(outcome.status))
    if reasons or x is None:
        [(reason, count)] = reasons.most_common(1)
        raise SimulationError(
            f"{reasons.total():,} of {m:,} simulations failed, {count:,} of them with: {reason}. Nothing was learnt "
            "from the others. Fix the simulator there, or restrict the prior to where it works."
        )
    return x
