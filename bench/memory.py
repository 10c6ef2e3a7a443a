"""The memory that the losses of many particles need when observations are many."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np

import nsmbayes as nsm
from bench.simulators import peak_gib
from bench.timing import Row, timed
from nsmbayes._parallel import map_rows
from nsmbayes.levels import DEFAULT_LEVELS
from nsmbayes.posteriors.data_loss import nsm_loss
from nsmbayes.surrogates import Frame, Standardiser, init_mixture_density_network
from nsmbayes.weights import fit_location_scatter

TINY = {"n": 200, "particles": 100, "gradients": 64}


def run(n: int = 10_000, particles: int = 1_000, gradients: int = 64, d_x: int = 3) -> list[Row]:
    """NSM losses of all particles, and gradients for some, with an untrained network; each in a process of its own."""
    rows = []
    for what, count in (("losses", particles), ("gradients", gradients)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(_measure, what, n, count, d_x).result())
    return rows


def _measure(what: str, n: int, particles: int, d_x: int) -> Row:
    x = np.random.default_rng(0).standard_normal((n, d_x))
    with jax.enable_x64(True):
        scales = [Standardiser(jnp.zeros(d), jnp.ones(d), asinh=False) for d in (d_x, 4)]
        network = init_mixture_density_network(
            jax.random.key(0), *scales, components=10, hidden=(64, 64), floor=0.02, ceiling=1e3
        )
        centre = fit_location_scatter(x)
        frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
        loss = nsm_loss(network, nsm.PlateauIMQ(), centre, frame, x, DEFAULT_LEVELS)
        theta = np.random.default_rng(1).standard_normal((particles, 4))
        before = peak_gib()
        first, _ = timed(lambda: map_rows(_loss if what == "losses" else jax.grad(_loss), theta, loss))
    detail = {"peak_gib": peak_gib(), "peak_gib_before": before}
    return Row(
        what=f"{what}, {particles} particles, n = {n:,}, d_x = {d_x}",
        first_s=first,
        later_s=first,
        repeats=1,
        detail=detail,
    )


def _loss(theta, loss):
    return loss(theta)
