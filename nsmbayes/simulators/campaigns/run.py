"""Run a campaign: simulate into a store, continuing where it stopped, in this process or elsewhere."""

import contextlib
import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from tqdm.auto import tqdm

from nsmbayes._internal import checks
from nsmbayes.calls import Caller, Outcome, RowStatus, Work, width_error
from nsmbayes.calls.executors import outcomes
from nsmbayes.errors import InputError, SimulationError
from nsmbayes.priors import as_prior, prior_to_json, unconstrained
from nsmbayes.simulators.base import NumpySimulator, Simulator, as_simulator
from nsmbayes.simulators.campaigns.campaign import Campaign
from nsmbayes.simulators.campaigns.fingerprint import prior_fingerprint, simulator_fingerprint
from nsmbayes.simulators.campaigns.store import Store, create, run_facts
from nsmbayes.simulators.numbered import MOST_ROWS, draw_theta

_LARGEST_BATCH = 10_000
_HOPELESS = 100  # a campaign stops if none of this many rows is valid


def simulate(
    simulator: Any,
    prior: Any,
    m: int,
    *,
    out: str | Path,
    seed: int = 0,
    executor: Any = None,
    batch: int | None = None,
    timeout: float | None = None,
    max_failures: float = 0.05,
    parameter_names: Sequence[str] | None = None,
    progress: bool = True,
) -> Campaign:
    """Draw `m` parameters from the prior, simulate each once, and store both in a campaign.

    If `out` exists already, only the missing rows are simulated: after an interruption, or for a larger `m`. Row i
    depends only on the seed and on i, so it does not change with the executor, the batch or an interruption.

    Args:
        simulator: a `NumpySimulator`, `BatchSimulator`, `CommandSimulator` or `JaxSimulator`, a task, or a function
            with arguments `rng` and `theta`.
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        m: number of rows of the campaign.
        out: the folder of the campaign, e.g. "campaign.zarr".
        seed: seed for parameters and simulations.
        executor: None for this process; a number of processes; a `concurrent.futures.Executor`; a Dask client, or the
            address of a Dask scheduler. A simulator that kills its process needs one of these, or a timeout.
        batch: number of rows that are simulated and written together; a killed process loses the batches that it was
            working on. By default a hundredth of m, at most 10,000.
        timeout: seconds that a call of the simulator may take.
        max_failures: the fraction of the m rows that may fail: raise, return NaN, take too long, or kill their process.
            Failed rows are stored with the reason. If more rows fail, `SimulationError` is raised; stored rows are
            kept.
        parameter_names: names for tables and plots.
        progress: whether to show a progress bar.

    Example:
        >>> import tempfile
        >>> import nsmbayes as nsm
        >>> prior = nsm.GaussianPrior(mean=[0.0], covariance=[1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = nsm.simulate(lambda rng, theta: theta + rng.normal(size=1), prior, 50, out=f"{folder}/c.zarr")
        ...     theta, x = made.arrays()
        >>> theta.shape, x.shape
        ((50, 1), (50, 1))
    """
    m, seed = checks.integer(m, "m", at_least=1), checks.integer(seed, "seed")
    if m > MOST_ROWS:
        raise InputError(
            f"`m` must be at most {MOST_ROWS:,} for one seed; got {m:,}. Merge campaigns of several seeds."
        )
    batch = min(_LARGEST_BATCH, -(-m // 100)) if batch is None else checks.integer(batch, "batch", at_least=1)
    max_failures = checks.fraction(max_failures, "max_failures", below=1.0 + 1e-9)
    chosen = as_campaign_simulator(simulator)
    prior = as_prior(prior)
    support = unconstrained(prior)
    names = tuple(
        parameter_names or getattr(prior, "parameter_names", None) or (f"theta_{i + 1}" for i in range(support.dim))
    )
    if len(names) != support.dim:
        raise InputError(f"`parameter_names` must be {support.dim} strings; got {names!r}.")
    facts = {
        "parts": [{"seed": seed}],
        "simulator": simulator_fingerprint(chosen),
        "prior": {"fingerprint": prior_fingerprint(prior), "json": prior_to_json(prior)},
    }
    path, caller = Path(out), chosen.caller()
    with contextlib.ExitStack() as stack:
        before = np.zeros(0, dtype=np.uint8)
        store = None
        if path.exists():
            store = Store(path, writable=True)
            check_same(store, facts, path)
            stack.enter_context(store.locked())
            before, batch = store.status(), store.batch
            store.extend(m)
            store.set_run(**run_facts(int(np.count_nonzero(before))))

        def new(d_x: int) -> Store:
            options = {"m": m, "d_theta": support.dim, "d_x": d_x, "batch": batch, "parameter_names": names}
            store = create(path, **options, **facts)
            stack.enter_context(store.locked())
            store.set_run(**run_facts(0))
            return store

        works = _works(caller, prior, seed, _pending(before, m, batch))
        made = stack.enter_context(contextlib.closing(outcomes(caller, works, executor, timeout)))
        limit = _Limit(max(m, len(before)), max_failures, before)
        total = max(m, len(before))
        with tqdm(
            total=total, initial=limit.done, desc="simulating", unit="row", disable=not progress, delay=1.0
        ) as bar:
            for outcome in _stored(made, store, new, limit):
                bar.set_postfix_str(f"{limit.failed:,} failed" if limit.failed else "", refresh=False)
                bar.update(len(outcome.status))
        limit.check()
    return Campaign(path)


def _pending(before: UInt8[np.ndarray, " rows"], m: int, batch: int) -> list[tuple[int, int]]:
    """The ranges of missing rows, batch by batch; the rows of a batch are simulated in order."""
    ranges = (
        (start + np.count_nonzero(before[start : start + batch]), min(start + batch, m)) for start in range(0, m, batch)
    )
    return [(int(start), stop) for start, stop in ranges if start < stop]


def _works(caller: Caller, prior: Any, seed: int, pending: list[tuple[int, int]]) -> Iterator[Work]:
    size = caller.calls_of
    for start, stop in pending:
        low, high = start // size * size, -(-stop // size) * size
        yield Work(seed, start, stop, low, draw_theta(prior, seed, low, high))


def _stored(
    made: Iterator[tuple[Work, Outcome]], store: Store | None, new: Callable[[int], Store], limit: "_Limit"
) -> Iterator[Outcome]:
    """Write outcomes as they arrive. A new store is created when the first valid row shows the width of x."""
    waiting: list[tuple[Work, Outcome]] = []
    for work, outcome in made:
        waiting.append((work, outcome))
        width = outcome.x.shape[1]
        if store is None and width:
            store = new(width)
        if store is not None:
            for each, result in waiting:
                if result.x.shape[1] not in (0, store.d_x):
                    raise width_error({store.d_x: 0, result.x.shape[1]: result.start})
                store.commit(each.theta[each.start - each.offset : each.stop - each.offset], result)
            waiting = []
        limit.count(outcome)
        yield outcome
    if store is not None:
        store.set_run(**store.run() | {"ended": time.time()})


class _Limit:
    """The limit on the number of rows that may fail."""

    def __init__(self, m: int, fraction: float, before: UInt8[np.ndarray, " rows"]):
        self.most, self.fraction, self.reasons = fraction * m, fraction, Counter[str]()
        self.m, self.done = m, int(np.count_nonzero(before))
        self.failed = int(np.count_nonzero(before > RowStatus.VALID))

    def count(self, outcome: Outcome) -> None:
        """Add rows; raise an error if too many have failed."""
        self.done += len(outcome.status)
        self.failed += int(np.count_nonzero(outcome.status > RowStatus.VALID))
        self.reasons.update(outcome.reasons.values())
        self.check()

    def check(self) -> None:
        """Raise an error if too many have failed."""
        hopeless = self.failed == self.done and self.done >= min(_HOPELESS, self.m)
        if self.failed <= self.most and not hopeless:
            return
        common = "".join(f"\n  {count:,} times: {reason}" for reason, count in self.reasons.most_common(3))
        allowed = "all of them" if hopeless else f"and `max_failures` allows {self.fraction:g} of {self.m:,}"
        raise SimulationError(
            f"{self.failed:,} of {self.done:,} simulations failed, {allowed}. What is stored is kept. Fix the "
            f"simulator, or restrict the prior to where it works, or raise `max_failures`.{common}"
        )


def as_campaign_simulator(value: Any) -> Simulator:
    """`value` as a simulator; a plain function must have the arguments `rng` and `theta`, in either order."""
    if inspect.isfunction(value) or inspect.ismethod(value):
        names = [
            name for name, argument in inspect.signature(value).parameters.items() if argument.default is argument.empty
        ]
        if names == ["rng", "theta"]:
            return NumpySimulator(value)
        if names == ["theta", "rng"]:
            return NumpySimulator(_Swapped(value))
        raise InputError(
            f"`simulator` is a function of {', '.join(names) or 'nothing'}: a plain function must have the arguments "
            "`rng` and `theta`. Or wrap it: nsmbayes.BatchSimulator(f), nsmbayes.JaxSimulator(f)."
        )
    return as_simulator(value)


class _Swapped:
    """A function of (theta, rng) as a function of (rng, theta)."""

    def __init__(self, function: Any):
        self.function = function

    def __call__(self, rng: np.random.Generator, theta: np.ndarray) -> Any:
        return self.function(theta, rng)


def check_same(store: Store, facts: dict[str, Any], path: str | Path) -> None:
    """Raise an error unless the campaign has this prior, this simulator and this seed."""
    differs = {
        "prior": store.attributes["prior"]["fingerprint"] != facts["prior"]["fingerprint"],
        "simulator": store.attributes["simulator"] != facts["simulator"],
        "seed": store.attributes["parts"] != facts["parts"],
    }
    if any(differs.values()):
        which = " and ".join(f"`{name}`" for name, other in differs.items() if other)
        raise InputError(
            f"`{path}` is a campaign with another {which}. Choose another `out`; campaigns that differ in their seed "
            "alone can be merged with nsmbayes.merge_campaigns."
        )
