"""Accuracy of score and Laplacian of a trained mixture density network on g-and-k data, by noise level."""

import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import stats

import nsmbayes as nsm
from bench.timing import Row, timed
from nsmbayes._internal.parallel import map_rows
from nsmbayes.losses import DEFAULT_NOISE_LEVELS
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import Density, Frame
from nsmbayes.tasks.gnk_exact import smoothed_derivatives

TINY = {
    "simulations": 300,
    "epochs": (1,),
    "ensemble": 2,
    "n": 30,
    "thetas": 1,
    "noise_levels": DEFAULT_NOISE_LEVELS[-1:],
}


def run(
    simulations: int = 100_000,
    epochs: tuple[int, ...] = (40, 20),
    ensemble: int = 4,
    n: int = 100,
    thetas: int = 20,
    noise_levels: tuple[float, ...] = DEFAULT_NOISE_LEVELS,
) -> list[Row]:
    """Root mean squared errors of h s and h^2 l at `n` clean observations with noise, whitened as for inference.

    Errors are computed at the true parameters, and at draws from the inner half of the prior. The networks are those of
    NLE and NSM-Bayes, one for each number of epochs, and an ensemble with the first number of epochs.
    """
    task = nsm.tasks.get("gnk")
    theta, x = task.simulate(simulations, seed=0, progress=False)
    places = {"truth": task.theta_true[None], "prior": _inner(task.prior, thetas)}
    exact = {name: [_Exact(one, n, noise_levels, seed=i) for i, one in enumerate(of)] for name, of in places.items()}
    rows = []
    for count, networks in [*((count, 1) for count in epochs), (epochs[0], ensemble)]:
        nle = nsm.NLE(task.prior, surrogate=nsm.MDN(ensemble=networks)).append_simulations(theta, x)
        start = time.perf_counter()
        nle.train(0, settings=replace(nle.default_training(1), max_epochs=count), progress=False)
        train_s = time.perf_counter() - start
        errors = {name: _errors(nle.density, of, noise_levels) for name, of in exact.items()}
        later = timed(_errors, nle.density, exact["truth"], noise_levels)
        rows.append(
            Row(
                what=f"{networks} network{'s' if networks > 1 else ''}, {count} epochs",
                first_s=train_s,
                later_s=later[0],
                later_cpu_s=later[1],
                repeats=1,
                detail={"first_is": "training", "later_is": "derivatives at the truth", "levels": errors},
            )
        )
    return rows


def _inner(prior: nsm.GaussianPrior, count: int) -> Float[np.ndarray, "count 4"]:
    """Draws of the prior within the ellipsoid that contains half of its probability."""
    draws = prior.sample((20 * count,), seed=1)
    residuals = draws - prior.mean
    inside = np.einsum("ni,ij,nj->n", residuals, prior.precision, residuals) < stats.chi2(prior.dim).median()
    return draws[inside][:count]


class _Exact:
    """Noisy observations for one theta, whitened, with the exact h s and h^2 l."""

    def __init__(self, theta: Float[np.ndarray, "4"], n: int, noise_levels: tuple[float, ...], *, seed: int):
        task, rng = nsm.tasks.get("gnk"), np.random.default_rng(seed)
        self.theta = theta
        x = task.simulator(np.tile(theta, (n, 1)), seed=1000 + seed)
        centre = fit_location_scatter(x)
        self.location, self.scale = np.asarray(centre.location), np.asarray(centre.factor)
        self.y = [(x - self.location) / self.scale[0] + h * rng.standard_normal((n, 1)) for h in noise_levels]
        self.values = [
            np.stack(map_rows(_exact_one, self.location + y * self.scale[0], theta, h * self.scale[0, 0]))
            for y, h in zip(self.y, noise_levels, strict=True)
        ]


def _exact_one(x, theta, h):
    return smoothed_derivatives(theta, x[0], jnp.asarray(h))


@jax.jit
def _network_values(
    density: Density, theta: Float[Array, "4"], frame: Frame, y: Float[Array, "n 1"], h: Float[Array, ""]
) -> Float[Array, "2 n"]:
    score, laplacian = density.derivatives_at(theta, frame, h)(y)
    return jnp.stack([h * score[:, 0], h**2 * laplacian])


def _errors(density: Any, places: list[_Exact], noise_levels: tuple[float, ...]) -> list[dict[str, float]]:
    """Root mean squared errors over all places for every level, and the root mean squares of the exact values."""
    rows = []
    with jax.enable_x64(True):
        for i, h in enumerate(noise_levels):
            exact = np.concatenate([place.values[i] for place in places], axis=1)
            found = [
                _network_values(
                    density, place.theta, Frame(jnp.asarray(place.location), jnp.asarray(place.scale)), place.y[i], h
                )
                for place in places
            ]
            error, size = (np.sqrt((v**2).mean(axis=1)) for v in (np.concatenate(found, axis=1) - exact, exact))
            rows.append(
                {
                    "h": h,
                    "score_rmse": float(error[0]),
                    "laplacian_rmse": float(error[1]),
                    "score_size": float(size[0]),
                    "laplacian_size": float(size[1]),
                }
            )
    return rows
