"""Simulations at given parameters, in this process or elsewhere."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from tqdm.auto import tqdm

from nsmbayes._internal import checks
from nsmbayes._internal.files import write_bytes
from nsmbayes.calls import RowStatus, Work
from nsmbayes.calls.executors import outcomes
from nsmbayes.errors import SimulationError
from nsmbayes.simulators.base import Simulator
from nsmbayes.simulators.campaigns.fingerprint import simulator_fingerprint

_BATCHES = 100


def simulate_at(
    simulator: Simulator,
    theta: Float[np.ndarray, "m d_theta"],
    *,
    seed: int,
    executor: Any = None,
    timeout: float | None = None,
    keep: Path | None = None,
    progress: bool = True,
) -> Float[np.ndarray, "m d_x"]:
    """One simulation for each row of theta; row i depends only on the seed, on i and on its theta.

    `executor` and `timeout` are those of `nsmbayes.simulate`. With a folder `keep`, simulations are saved there, a
    hundredth at a time, and read from there in later calls, also by other processes. A failed row is an error, since a
    likelihood learnt without the failed rows is a different one.

    Example:
        >>> import nsmbayes as nsm
        >>> simulator = nsm.NumpySimulator(lambda rng, theta: theta + rng.normal(size=1))
        >>> simulate_at(simulator, np.zeros((5, 1)), seed=0, progress=False).shape
        (5, 1)
    """
    m, seed = len(theta), checks.integer(seed, "seed")
    caller = simulator.caller()
    size = -(-max(1, m // _BATCHES) // caller.calls_of) * caller.calls_of

    kept = None if keep is None else _Kept(keep, simulator_fingerprint(simulator))
    x: np.ndarray | None = None
    reasons: Counter[str] = Counter()

    def put(start: int, found: np.ndarray) -> None:
        nonlocal x
        if x is None:
            x = np.empty((m, found.shape[1]))
        x[start : start + len(found)] = found

    def works() -> Iterator[Work]:
        for start in range(0, m, size):
            stop = min(start + size, m)
            if kept is not None and (known := kept.read(seed, start, theta[start:stop])) is not None:
                put(start, known)
                bar.update(len(known))
                continue
            padded = theta[np.minimum(np.arange(start, start + size), m - 1)]  # calls always have whole batches
            yield Work(seed, start, stop, start, padded)

    with tqdm(total=m, desc="simulating", unit="row", disable=not progress, delay=1.0) as bar:
        for _, outcome in outcomes(caller, works(), executor, timeout):
            reasons.update(outcome.reasons.values())
            if (outcome.status == RowStatus.VALID).all():
                put(outcome.start, outcome.x)
                if kept is not None:
                    kept.write(seed, outcome.start, theta[outcome.start : outcome.start + len(outcome.x)], outcome.x)
            bar.update(len(outcome.status))
    if reasons or x is None:
        [(reason, count)] = reasons.most_common(1)
        raise SimulationError(
            f"{reasons.total():,} of {m:,} simulations failed, {count:,} of them with: {reason}. Nothing was learnt "
            "from the others. Fix the simulator there, or restrict the prior to where it works."
        )
    return x


class _Kept(NamedTuple):
    """Simulations saved in a folder; file names are hashes of everything the simulations depend on."""

    folder: Path
    simulator: str

    def read(self, seed: int, start: int, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d_x"] | None:
        """The saved simulations of some rows; None if they are missing or damaged."""
        try:
            found = np.load(self._path(seed, start, theta), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        usable = found.ndim == 2 and len(found) == len(theta) and found.dtype == np.float64 and np.isfinite(found).all()
        return found if usable else None

    def write(self, seed: int, start: int, theta: Float[np.ndarray, "k d"], x: Float[np.ndarray, "k d_x"]) -> None:
        content = io.BytesIO()
        np.save(content, np.asarray(x, np.float64), allow_pickle=False)
        write_bytes(self._path(seed, start, theta), content.getvalue())

    def _path(self, seed: int, start: int, theta: Float[np.ndarray, "k d"]) -> Path:
        digest = hashlib.sha256(f"{self.simulator} {seed} {start} {theta.shape}".encode() + theta.tobytes())
        return self.folder / f"{digest.hexdigest()[:32]}.npy"
