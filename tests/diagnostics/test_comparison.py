import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.builders import conjugate, data, general, mdn

import nsmbayes as nsm
from nsmbayes.diagnostics import compare
from nsmbayes.surrogates import Density, Standardiser
from nsmbayes.surrogates.base import Derivatives
from nsmbayes.weights import Constant

PRIOR = nsm.GaussianPrior([0.0], [4.0])
X = 1 + np.random.default_rng(3).standard_normal((25, 1))


class Normal(Density):
    """q(x | theta) = N(x; theta, scale^2)."""

    scale: jax.Array
    scale_x: Standardiser

    def log_prob(self, theta, x):
        return jax.scipy.stats.norm.logpdf(x[0], theta[0], self.scale)

    def network_log_prob(self, t, z):
        return self.log_prob(t, z)

    def derivatives(self, theta, x, basis):
        return Derivatives(basis.T @ (theta - x) / self.scale**2, -jnp.trace(basis.T @ basis) / self.scale**2)


def moments(x, scale):
    precision = len(x) / scale**2 + 1 / 4
    return x.sum() / scale**2 / precision, precision**-0.5


def exact(x, scale, of=None):
    """The posterior of NLE with this density, with draws of the exact posterior, or of one with other moments."""
    mean, std = moments(x, scale) if of is None else of
    positions = mean + std * np.random.default_rng(1).standard_normal((2, 2000, 1))
    with jax.enable_x64(True):
        unit = Standardiser(jnp.zeros(1), jnp.ones(1), asinh=False)
        density = Normal(jnp.asarray(scale), unit)
        return general(density, Constant(), prior=PRIOR, x=x, nle=True, positions=positions)


def predictive(x, scale):
    """log N(x_i; mean and variance of the prediction from the others), in closed form."""
    found = []
    for i in range(len(x)):
        mean, std = moments(np.delete(x, i, axis=0), scale)
        found.append(stats.norm.logpdf(x[i, 0], mean, np.hypot(std, scale)))
    return np.array(found)


def test_scores_are_the_exact_predictions():
    found = compare({"wide": exact(X, 2.0), "right": exact(X, 1.0)})
    assert [each.name for each in found.scores] == ["right", "wide"]
    for score, scale in zip(found.scores, (1.0, 2.0), strict=True):
        assert score.each == pytest.approx(predictive(X, scale), abs=0.02)
        assert len(score.unreliable) == 0
    difference = predictive(X, 1.0) - predictive(X, 2.0)
    assert found.scores[1].behind == pytest.approx(difference.sum(), abs=0.2)
    assert found.scores[1].error == pytest.approx(5 * difference.std(ddof=1), rel=0.05)
    assert "right predicts best" in found.explain()
    assert "too close to tell" in found.explain()
    assert "clearly worse" in compare({"far too wide": exact(X, 9.0), "right": exact(X, 1.0)}).explain()
    assert found.table().splitlines()[1].startswith("right")
    assert list(found.to_pandas()["name"]) == ["right", "wide"]


def test_what_hardly_counts_does_not_decide():
    """Two observations at 40 are less unlikely for the wide density, which wins unless they hardly count."""
    x = X.copy()
    x[:2] = 40.0
    posteriors = {name: exact(x, scale, moments(x[2:], scale)) for name, scale in (("right", 1.0), ("wide", 2.0))}
    assert compare(posteriors).scores[0].name == "wide"
    weights = np.where(x[:, 0] == 40.0, 1e-3, 1.0)
    assert compare(posteriors, weights=weights).scores[0].name == "right"


def test_an_observation_that_weighs_too_much_is_named():
    x = np.concatenate([X[:4], [[30.0]]])
    found = compare({"a": exact(x, 1.0), "b": exact(x, 1.5)})
    assert all(4 in each.unreliable for each in found.scores)
    assert "4 weigh so much" in found.explain().replace("\n", " ")


def test_in_closed_form_leaving_out_is_exact():
    """NSM-Bayes-conj: scores from 1,000 reweighted draws against draws of the posterior without the observation."""
    with jax.enable_x64(True):
        density = mdn(1)
    posterior = conjugate(1, excess=None, beta=0.05)
    other = conjugate(1, excess=None, beta=0.1)
    densities = {"a": density, "b": density}
    found = {each.name: each for each in compare({"a": posterior, "b": other}, densities=densities).scores}
    x, theta = data(1), np.random.default_rng(0)
    for i in (0, 7):
        loss = [np.concatenate(part)[i] for part in zip(*posterior.statistics.each(), strict=True)]
        total = posterior.statistics.total
        precision = posterior.prior.precision + 2 * posterior.beta * (total.A - loss[0])
        mean = np.linalg.solve(
            precision, posterior.prior.precision @ posterior.prior.mean - 2 * posterior.beta * (total.B - loss[1])
        )
        draws = mean + theta.standard_normal((20_000, 2)) @ np.linalg.cholesky(np.linalg.inv(precision)).T
        with jax.enable_x64(True):
            logs = jax.vmap(lambda t, i=i: density.log_prob(t, jnp.asarray(x[i])))(jnp.asarray(draws))
        q = np.exp(np.asarray(logs))
        error = q.std() / q.mean() / np.sqrt(1000)
        assert found["a"].each[i] == pytest.approx(np.log(q.mean()), abs=5 * error + 1e-3)


def test_where_draws_cannot_tell_a_closed_form_is_computed_again(monkeypatch):
    posterior, densities = conjugate(1, excess=None, beta=0.05), {"a": mdn(1), "b": mdn(1)}
    reweighted = compare({"a": posterior, "b": posterior}, densities=densities).scores[0]
    monkeypatch.setattr("nsmbayes.diagnostics.comparison.trusted_k", lambda draws: -np.inf)
    again = compare({"a": posterior, "b": posterior}, densities=densities).scores[0]
    assert (reweighted.refitted, again.refitted) == (0, 20)
    assert len(again.unreliable) == posterior.n - 20
    renewed = np.setdiff1d(np.arange(posterior.n), again.unreliable)
    assert again.each[renewed] == pytest.approx(reweighted.each[renewed], abs=0.15)
    assert not np.array_equal(again.each[renewed], reweighted.each[renewed])
    left = compare({"a": posterior, "b": posterior}, densities=densities, refit=False).scores[0]
    assert (left.refitted, len(left.unreliable)) == (0, posterior.n)


def test_bad_input():
    one, other = exact(X, 1.0), exact(X[::-1], 1.0)
    with pytest.raises(nsm.InputError, match="at least two posteriors"):
        compare({"a": one})
    with pytest.raises(nsm.InputError, match="same observations in the same order; 'b' is not"):
        compare({"a": one, "b": other})
    with pytest.raises(nsm.InputError, match="a dictionary of posteriors"):
        compare({"a": one, "b": 3})
    with pytest.raises(nsm.InputError, match="`weights` must be a vector of shape"):
        compare({"a": one, "b": one}, weights=[1.0])
    family = conjugate(1, excess=None)
    with pytest.raises(nsm.InputError, match="no normalised density"):
        compare({"a": family, "b": family})
