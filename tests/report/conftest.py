"""Posteriors to draw: those of our methods with random networks, and one of a baseline, known by its draws."""

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.posteriors import Provenance, SampledPosterior
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import Draws

FAST = nsm.calibration.RootCalibration(bootstraps=20, grid=9)


@pytest.fixture(scope="session")
def posterior(random_method):
    """Posteriors of any size. The first tenth of the observations are outliers."""

    def make(d_x, d_theta, *, n=50, far=30.0, beta=0.5, seed=0, **options):
        x = np.random.default_rng(seed).standard_normal((n, d_x))
        x[: n // 10] += far
        scatter = "mcd" if d_x == 1 else "mad"  # MCD takes long to compile in more dimensions
        method = random_method(d_x, d_theta, **({"scatter": scatter, "calibration": FAST} | options))
        return method.build_posterior(x, beta=beta)

    return make


@pytest.fixture(scope="session")
def sampled():
    """Posteriors as the baselines make them: draws, and observations without a loss or weights."""

    def make(x, d_theta=2, *, prior=None, r_hat=1.0, dropped=0.0, seed=0):
        draws = 0.3 + 0.1 * np.random.default_rng(seed).standard_normal((2, 400, d_theta))
        prior = nsm.GaussianPrior(np.zeros(d_theta), np.eye(d_theta)) if prior is None else prior
        names = tuple(f"theta_{i + 1}" for i in range(d_theta))
        one, zero = np.ones(d_theta), np.zeros(len(draws), int)
        result = Draws(draws, zero + 0.8, zero, r_hat=r_hat * one, ess_bulk=500 * one, ess_tail=500 * one)
        provenance = Provenance("npe", "NPE", names, nsm.certify, dropped=dropped)
        return SampledPosterior(provenance, unconstrained(prior), draws, x, result=result)

    return make
