import functools

import jax
import numpy as np
import pytest
from scipy import stats

from nsmbayes._internal.precision import double_precision
from nsmbayes.tasks.counts import binomial, poisson

GRID = (np.arange(20_000) + 0.5) / 20_000


@functools.cache
def _over_u(function, parameters):
    return jax.jit(jax.vmap(function, (0, *[None] * parameters)))


@double_precision
def _counts(function, *parameters, u=GRID):
    return np.asarray(_over_u(function, len(parameters))(u, *map(float, parameters)))


def _is_distribution(counts, distribution):
    """Every value owns one interval of u, as long as its probability: the grid can be off by one point for each."""
    values, hits = np.unique(counts, return_counts=True)
    return np.abs(hits / len(counts) - distribution.pmf(values)).max() <= 1.01 / len(counts)


@pytest.mark.parametrize("hazard", [1e-9, 0.003, 0.2, 0.7, 3.0, 40.0])
@pytest.mark.parametrize("n", [1, 2, 17, 980, 1000])
def test_binomial_probabilities(n, hazard):
    assert _is_distribution(_counts(binomial, n, hazard), stats.binom(n, -np.expm1(-hazard)))


@pytest.mark.parametrize("mean", [1e-9, 0.3, 1.0, 7.5, 80.0, 999.0])
def test_poisson_probabilities(mean):
    assert _is_distribution(_counts(poisson, mean), stats.poisson(mean))


def test_the_comparison_sees_an_error_of_a_tenth():
    assert not _is_distribution(_counts(binomial, 980, 0.22), stats.binom(980, -np.expm1(-0.2)))
    assert not _is_distribution(_counts(poisson, 0.33), stats.poisson(0.3))


@pytest.mark.parametrize(
    ("function", "parameters", "expected"),
    [
        (binomial, (0, 0.5), 0),
        (binomial, (12, 0.0), 0),
        (binomial, (12, 1e9), 12),
        (binomial, (1000, np.inf), 1000),
        (poisson, (0.0,), 0),
    ],
)
def test_what_is_certain(function, parameters, expected):
    u = np.array([0.0, 1e-300, 0.5, 1 - 2.0**-53])
    assert (_counts(function, *parameters, u=u) == expected).all()


def test_no_count_leaves_its_range_at_the_ends_of_u():
    u = np.array([0.0, 2.0**-53, 1 - 2.0**-53])
    for hazard in (1e-6, 0.1, 2.0):
        counts = _counts(binomial, 1000, hazard, u=u)
        assert (counts == np.round(counts)).all()
        assert counts.min() >= 0
        assert counts.max() <= 1000
