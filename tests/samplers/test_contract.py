"""Every sampler must reproduce a posterior that is known exactly, and the check must notice when it does not."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest

from nsmbayes.samplers import require_converged, sample_independence, sample_nuts, sample_slice

pytestmark = pytest.mark.usefixtures("optimised")

D = 4
traces = 0


class Problem(NamedTuple):
    """exp(-beta (theta' A theta + 2 theta' B)) N(theta; mean, precision^-1)."""

    A: np.ndarray
    B: np.ndarray
    mean: np.ndarray
    precision: np.ndarray
    beta: float


def _log_prior(theta, problem):
    residual = theta - problem.mean
    return -0.5 * residual @ problem.precision @ residual


def _loss(theta, problem):
    global traces
    traces += 1
    return theta @ problem.A @ theta + 2 * theta @ problem.B


def _log_prob(theta, problem):
    return _log_prior(theta, problem) - problem.beta * _loss(theta, problem)


# What each sampler returns has an effective size of more than 10,000 for squares, and the one given for means.
def _nuts(problem, prior, key):
    draws = sample_nuts(_log_prob, prior.sample((8,), seed=0), problem, warmup=300, draws=2500, key=key)
    return require_converged(draws).flat, draws.ess_bulk


def _slice(problem, prior, key):
    draws = sample_slice(_log_prob, prior.sample((100,), seed=0), problem, warmup=300, draws=1500, key=key)
    return require_converged(draws).flat, draws.ess_bulk


def _independence(problem, prior, key):
    start = prior.sample((500,), seed=0)
    draws = sample_independence(_log_prior, _loss, start, problem, beta=problem.beta, chains=8, draws=2500, key=key)
    return require_converged(draws).flat, draws.ess_bulk


SAMPLERS = {"nuts": _nuts, "slice": _slice, "independence": _independence}
PLANTED_BUGS = {
    "beta 20 % too large": lambda problem: problem._replace(beta=1.2 * problem.beta),
    "beta 20 % too small": lambda problem: problem._replace(beta=0.8 * problem.beta),
    "wrong sign of B": lambda problem: problem._replace(B=-problem.B),
    "no prior": lambda problem: problem._replace(precision=1e-3 * problem.precision),
}


def _require_moments(draws, ess, posterior):
    """The mean within 4 Monte Carlo errors, the covariance within 5 % (Frobenius norm, in units of the exact one).

    False alarms: 4 coordinates beyond 4 standard errors, one key in 4,000; and the covariance of 10,000 independent
    draws is off by 5 % with the probability that chi2(10) exceeds 50, one key in 3 million.
    """
    z = (draws - posterior.mean) @ np.linalg.inv(np.linalg.cholesky(posterior.covariance)).T
    errors = np.abs(draws.mean(axis=0) - posterior.mean) / (posterior.std / np.sqrt(ess))
    assert (errors < 4).all(), f"means off by {errors} Monte Carlo errors"
    off = np.linalg.norm(np.cov(z.T) - np.eye(D)) / np.sqrt(D)
    assert off < 0.05, f"covariance off by {off:.1%}"


@pytest.fixture(scope="module")
def posterior(random_method):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 2)) + 1
    x[:4] -= 50
    return random_method(2, D).build_posterior(x, beta=0.7)


def _problem(posterior):
    prior = posterior.prior
    return Problem(
        posterior.statistics.total.A, posterior.statistics.total.B, prior.mean, prior.precision, posterior.beta
    )


@pytest.fixture(scope="module")
def drawn(posterior):
    """What each sampler draws with the first key."""
    return functools.cache(lambda sampler: SAMPLERS[sampler](_problem(posterior), posterior.prior, jax.random.key(0)))


@pytest.mark.parametrize("sampler", SAMPLERS)
class TestEverySampler:
    def test_reproduces_the_exact_posterior(self, sampler, posterior, drawn):
        draws, ess = drawn(sampler)
        assert draws.dtype == np.float64
        _require_moments(draws, ess, posterior)

    @pytest.mark.parametrize("bug", PLANTED_BUGS)
    def test_a_planted_bug_is_caught(self, sampler, bug, posterior):
        problem = PLANTED_BUGS[bug](_problem(posterior))
        draws, ess = SAMPLERS[sampler](problem, posterior.prior, jax.random.key(0))
        with pytest.raises(AssertionError, match="off by"):
            _require_moments(draws, ess, posterior)

    def test_other_data_need_no_new_compilation_and_the_key_decides(self, sampler, posterior, drawn):
        run, prior, first = SAMPLERS[sampler], posterior.prior, jax.random.key(0)
        draws, _ = drawn(sampler)
        before = traces
        other = posterior.with_beta(0.05)
        _require_moments(*run(_problem(other), prior, jax.random.key(1)), other)
        assert np.array_equal(run(_problem(posterior), prior, first)[0], draws)
        assert not np.isclose(run(_problem(posterior), prior, jax.random.key(1))[0], draws).all()
        assert traces == before
