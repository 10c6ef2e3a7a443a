"""Scaling of the NSM-Bayes posterior for three columns with the number of observations, in time and memory."""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from jaxtyping import Float

import nsmbayes as nsm
from bench.simulators import peak_gib
from bench.timing import Row, timed
from nsmbayes.suspects import MOST

TINY = {
    "simulations": 500,
    "epochs": 1,
    "sizes": (20,),
    "compared": 60,
    "most": 60,
    "noise_levels": (0.5,),
    "chains": 2,
    "draws": 10,
    "repeats": 1,
}


def run(
    simulations: int = 20_000,
    epochs: int = 30,
    sizes: Sequence[int] = (100, 1_000, 10_000, 100_000),
    compared: int = 10_000,
    most: int = 1_000_000,
    noise_levels: tuple[float, ...] = nsm.losses.DEFAULT_NOISE_LEVELS,
    chains: int = 4,
    draws: int = 500,
    repeats: int = 1,
) -> list[Row]:
    """SIR data with undercounting, calibrated; moments compared with those of the full loss; peak memory.

    With compared=0 there is no comparison with the full loss, which takes longest.
    """
    task = nsm.tasks.get("sir")
    theta, x = task.simulate(simulations, seed=100, progress=False)
    method = nsm.NSMBayes(
        task.prior, grid_steps=task.grid_steps, noise_levels=noise_levels, chains=chains, draws=draws
    ).append_simulations(theta, x)
    settings = replace(method.default_training(x.shape[1]), max_epochs=epochs)
    method.train(0, settings=settings, progress=False)
    pool = task.observe(max(compared, *sizes), seed=100).x
    rng = np.random.default_rng(0)

    def data(n: int) -> Float[np.ndarray, "n d_x"]:
        return pool[rng.choice(len(pool), n, replace=n > len(pool))]

    rows, compiled = [], False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # observations outside the simulations; chains of ten draws
        for n in sizes:
            rows.append(_size(lambda i, n=n: method.build_posterior(data(n), seed=i), n, repeats, compiled=compiled))
            compiled = n > MOST
        if compared:
            rows.append(_compare(method, data(compared)))
    # a new process, so that earlier memory use is not included
    with TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        path = method.save(Path(folder) / "sir")
        rows.append(other.submit(_memory, path, data(most)).result())
    return rows


def _size(call: Callable[[int], Any], n: int, repeats: int, *, compiled: bool) -> Row:
    """Time the posterior of n observations. All n above 1,000 share programs, so a first call counts as a later one."""
    first = timed(call, 0)
    later = [timed(call, repeat) for repeat in range(1, repeats + 1)] if not compiled else [first]
    wall, cpu = np.median(later, axis=0)
    return Row(what=f"n = {n:,}", first_s=first[0], later_s=float(wall), later_cpu_s=float(cpu), repeats=len(later))


def _compare(method: nsm.NSMBayes, x: Float[np.ndarray, "n d_x"]) -> Row:
    """Difference of the moments from those with the full loss, in standard deviations and as ratios."""
    found: dict[str, Any] = {}

    def build() -> None:
        found["subset"] = method.build_posterior(x, beta=1.0)

    def build_full() -> None:
        with mock.patch("nsmbayes.methods.nsm_bayes.MANY", len(x)):  # same weights, excess and correction
            found["full"] = method.build_posterior(x, beta=1.0)

    first, (later, _) = timed(build)[0], timed(build_full)
    posterior, full = found["subset"], found["full"]
    detail = {
        "means_apart_in_sd": float(np.abs((posterior.mean - full.mean) / full.std).max()),
        "sd_ratios": (posterior.std / full.std).tolist(),
        "error_nats": None if posterior.compression is None else posterior.compression.error,
        "full_s": later,
    }
    return Row(what=f"n = {len(x):,} against the full loss", first_s=first, later_s=first, repeats=1, detail=detail)


def _memory(path: Path, x: Float[np.ndarray, "n d_x"]) -> Row:
    method, before = nsm.load(path), peak_gib()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        first, cpu = timed(lambda: method.build_posterior(x).summary())
    detail = {"peak_gib": peak_gib(), "peak_gib_before": before}
    return Row(what=f"memory, n = {len(x):,}", first_s=first, later_s=first, later_cpu_s=cpu, repeats=1, detail=detail)
