"""Speed of a device for matrix products, training and sampling: the measurements of `nsmbayes bench`.

Compilation is timed separately, and every later call has new data. The result is the fastest of several calls, because
other processes on the machine can only make a call slower.
"""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes import tasks
from nsmbayes._internal.precision import double_precision
from nsmbayes.experiments import Effort
from nsmbayes.methods import NLE, NSMBayes, NSMBayesConj
from nsmbayes.priors import GaussianPrior
from nsmbayes.training import TrainingSettings

COLUMNS = (1, 2, 8)
_PARAMETERS, _SIMULATIONS, _EPOCHS = 3, 20_000, 6
_OBSERVATIONS, _DRAWS, _REPEATS = 100, 1000, 3


@double_precision
def matrix_gflops(size: int = 1024) -> dict[str, float]:
    """Billions of operations per second in the product of two square matrices, in single and double precision."""
    rates = {}
    for dtype in ("float32", "float64"):
        matrix = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)), dtype)
        multiply = jax.jit(lambda a: a @ a)
        seconds = fastest(lambda _, a=matrix, f=multiply: f(a).block_until_ready(), repeats=5)[1]
        rates[dtype] = 2 * size**3 / seconds / 1e9
    return rates


def training(columns: Iterable[int], *, effort: Effort | None = None) -> list[dict[str, Any]]:
    """Microseconds per simulation and epoch of a mixture density network, x = A theta + noise with a random A.

    `gflops` counts only products with the network's weights: two operations each, once forwards and twice backwards.
    """
    rng = np.random.default_rng(1)
    prior = GaussianPrior(np.zeros(_PARAMETERS), np.ones(_PARAMETERS))
    theta = prior.sample((_SIMULATIONS,), seed=0)
    settings = TrainingSettings(max_epochs=_EPOCHS, batch_size=512)
    rows = []
    for d_x in columns:
        x = theta @ rng.standard_normal((_PARAMETERS, d_x)) + rng.standard_normal((_SIMULATIONS, d_x))
        method = NLE(prior).append_simulations(theta, x)
        history = method.train(0, settings=_less(settings, effort), progress=False).history
        assert history is not None
        epoch_s = (history.seconds - history.compile_seconds) / len(history.train_loss)
        us = 1e6 * epoch_s / _SIMULATIONS
        weights = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(method.density, eqx.is_inexact_array)))
        gflops = 6e-3 * weights / us
        rows.append({"d_x": d_x, "us_per_simulation": us, "gflops": gflops, "compile_s": history.compile_seconds})
    return rows


def posteriors(*, effort: Effort | None = None, datasets: int = 0) -> list[dict[str, Any]]:
    """Seconds for one calibrated posterior of contaminated g-and-k data, and effective draws per second.

    With `datasets`, also seconds for this number of posteriors together, by NSM-Bayes-conj.
    """
    task = tasks.get("gnk")
    sampler: dict[str, Any] = {} if effort is None or effort.sampler is None else {"sampler": effort.sampler}
    settings = _less(TrainingSettings(max_epochs=30), effort)
    theta, x = task.simulate(_SIMULATIONS, seed=0, progress=False)
    robust = NSMBayes(task.prior, **sampler).append_simulations(theta, x)
    conjugate = NSMBayesConj(task.prior).append_simulations(theta, x)
    for method in (robust, conjugate):
        method.train(0, settings=settings, progress=False)
    data = [task.observe(_OBSERVATIONS, seed=1 + i).x for i in range(_REPEATS + 1)]
    rows = []
    for method in (NLE(task.prior, **sampler).adopt(robust), robust, conjugate):
        kept = []

        def call(i: int, method: Any = method, kept: list[Any] = kept) -> None:
            kept.append(method.build_posterior(data[i], seed=i))
            kept[-1].sample((_DRAWS,), seed=i)

        first, later = fastest(call, repeats=_REPEATS)
        # Draws of a conjugate posterior are independent.
        effective = [float(p.result.ess_bulk.min()) if hasattr(p, "result") else _DRAWS for p in kept]
        rows.append(_row(method.label, first, later) | {"effective_draws_per_s": float(np.median(effective)) / later})
    if datasets:
        rng = np.random.default_rng(0)
        sets = [rng.choice(one[:, 0], (datasets, _OBSERVATIONS, 1)) for one in data]
        timing = fastest(lambda i: conjugate.build_posteriors(sets[i], beta=0.25), repeats=_REPEATS)
        rows.append(_row(f"{conjugate.label}, {datasets:,} data sets", *timing))
    return rows


def on_device(
    device: Any, *, columns: Iterable[int] = COLUMNS, datasets: int = 0, effort: Effort | None = None
) -> dict[str, Any]:
    """All measurements on one of `jax.devices()`."""
    with jax.default_device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # observations outside the range of the simulations
        return {
            "device": device.platform,
            "kind": device.device_kind,
            "matrix_gflops": matrix_gflops(),
            "training": training(columns, effort=effort),
            "posteriors": posteriors(datasets=datasets, effort=effort),
        }


def fastest(call: Callable[[int], Any], *, repeats: int) -> tuple[float, float]:
    """Seconds of the first call, with compilation, and of the fastest later call. `call` gets its number."""
    seconds = []
    for i in range(repeats + 1):
        start = time.perf_counter()
        call(i)
        seconds.append(time.perf_counter() - start)
    return seconds[0], min(seconds[1:])


def _row(what: str, first: float, later: float) -> dict[str, Any]:
    return {"what": what, "seconds": later, "compile_s": max(first - later, 0.0)}


def _less(settings: TrainingSettings, effort: Effort | None) -> TrainingSettings:
    """Training settings with at most the number of epochs of a trial run."""
    trial = None if effort is None else effort.training
    return settings if trial is None else replace(settings, max_epochs=trial.max_epochs)
