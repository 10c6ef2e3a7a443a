"""Memory for the losses of many particles with many observations."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax
import numpy as np

from bench.simulators import peak_gib
from bench.timing import Row, timed
from nsmbayes._internal.parallel import map_rows
from nsmbayes.losses import DEFAULT_NOISE_LEVELS, NSMSetting
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import MDN, Scalers
from nsmbayes.weights import PlateauIMQ, Weighting

TINY = {"n": 200, "particles": 100, "gradients": 64}


def run(n: int = 10_000, particles: int = 1_000, gradients: int = 64, d_x: int = 3) -> list[Row]:
    """NSM losses of all particles, and gradients for some, with an untrained network; each in a separate process."""
    rows = []
    for what, count in (("losses", particles), ("gradients", gradients)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(_measure, what, n, count, d_x).result())
    return rows


def _measure(what: str, n: int, particles: int, d_x: int) -> Row:
    x = np.random.default_rng(0).standard_normal((n, d_x))
    with jax.enable_x64(True):
        network = MDN(hidden=(64, 64)).build(jax.random.key(0), Scalers.blank(d_x, 4))
        weighting = Weighting(PlateauIMQ(), fit_location_scatter(x))
        loss = NSMSetting.of(network, weighting, DEFAULT_NOISE_LEVELS, whiten=True).loss(x)
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
