"""RSNLE on a Gaussian location: without adjustments it is NLE, with them it lets go of what no theta can explain."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.location import PRIOR, SIMULATOR, check_posterior, exact_posterior, observed

import nsmbayes as nsm
from nsmbayes.methods.baselines.plan import TrainingPlan
from nsmbayes.methods.baselines.rsnle import fit_flow, log_prob, round_target, untrained_flow
from nsmbayes.priors import unconstrained

pytestmark = pytest.mark.baselines

N = 20
SETTINGS = nsm.TrainingSettings(
    learning_rate=3e-3, weight_decay=0.0, batch_size=64, max_epochs=60, patience=60, schedule="cosine"
)


def mean_and_spread(sets):
    return np.stack([sets[..., 0].mean(axis=1), np.log(sets[..., 0].std(axis=1))], axis=1)


def method(**options):
    options = {"rounds": 1, "sets": 400, "layers": 2, "hidden": 8, "chains": 2, "warmup": 100, "draws": 250} | options
    return nsm.RSNLE(PRIOR, SIMULATOR, **options).train(0, settings=SETTINGS, progress=False)


def fitted(u, s, observed, settings, *, adjustment):
    """The density of a round with these simulations."""
    untrained = untrained_flow(jax.random.key(0), s.shape[1], 1, layers=2, hidden=8)
    flow, _ = fit_flow(untrained, u, s, TrainingPlan(0, settings, progress=False), jax.random.key(1))
    return round_target(unconstrained(PRIOR), flow, observed, adjustment)


def test_without_adjustments_it_is_nle():
    """Both on the mean of 20 readings, which is sufficient: the same posterior, and the exact one.

    Within a third of its standard deviation: each network is trained on 400 or 2000 simulations only.
    """
    x, grid = observed(N, 0), np.linspace(-1, 3, 401)
    theta, sets = nsm.simulate_sets(PRIOR, SIMULATOR, m=2000, n=N, seed=5)
    means = sets.mean(axis=1)
    target = fitted(theta[:400], means[:400], x.mean(axis=0), SETTINGS, adjustment=0.0)
    nle = nsm.NLE(PRIOR, surrogate=nsm.MDN(components=1, hidden=(16,))).append_simulations(theta, means)
    density = nle.train(0, settings=SETTINGS, progress=False).density
    prior = unconstrained(PRIOR)
    with jax.enable_x64(True):
        points, mean = jnp.asarray(grid)[:, None], jnp.asarray(x.mean(axis=0))
        of_rsnle = jax.jit(jax.vmap(lambda u: log_prob(u, target)))(points)
        of_nle = jax.jit(jax.vmap(lambda u: density.log_prob(u, mean) + prior.log_prob(u)))(points)
    exact = exact_posterior(x)
    for log_p in map(np.asarray, (of_rsnle, of_nle)):
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        assert p @ grid == pytest.approx(exact[0], abs=exact[1] / 3)
        assert np.sqrt(p @ (grid - p @ grid) ** 2) == pytest.approx(exact[1], rel=0.25)


def test_an_impossible_statistic_is_shifted_away():
    """Outliers blow up the spread, which no theta can do; the mean they move is taken for granted."""
    x = observed(N, 0)
    x[:2] += [[12.0], [-12.0]]  # the mean stays
    rsnle = method(rounds=2, sets=200, summary=mean_and_spread, budget=2 * 200 * N)
    posterior = rsnle.build_posterior(x, seed=1)
    assert rsnle.simulations_used == rsnle.planned_simulations(N) == 2 * 200 * N
    assert len(rsnle.histories) == 2
    check_posterior(posterior, N)
    mean, sd = exact_posterior(x)
    assert abs(posterior.mean[0] - mean) < 2 * sd
    shift = np.abs(posterior.adjustments).mean(axis=(0, 1))
    assert shift.shape == (2,)
    assert shift[1] > 5 * shift[0]
    with pytest.raises(nsm.BudgetError):
        rsnle.build_posterior(x)


def test_the_density_of_theta_and_the_adjustments(x64):
    """log q(s - Gamma | theta) + log prior + log Laplace(Gamma; 0, scale), up to a constant."""
    s = np.random.default_rng(0).standard_normal((20, 2))
    u = np.random.default_rng(1).standard_normal((20, 1))
    target = fitted(u, s, np.array([3.0, -4.0]), nsm.TrainingSettings(max_epochs=1), adjustment=0.3)
    assert np.allclose(target.scale, 0.3 * np.abs(target.observed))

    flow_log_prob = eqx.filter_jit(target.flow.network_log_prob)

    def by_hand(u, gamma):
        t = (u - target.flow.scale_theta.centre) / target.flow.scale_theta.scale
        log_laplace = -(np.abs(gamma) / target.scale).sum()
        return flow_log_prob(t, target.observed - gamma) - (u @ u) / 8 + log_laplace

    points = [(np.array([0.5]), np.array([0.3, -1.0])), (np.array([-1.0]), np.array([2.0, 0.1]))]
    density = eqx.filter_jit(log_prob)
    ours = [float(density(jnp.concatenate([u, g / target.scale]), target)) for u, g in points]
    assert ours[0] - ours[1] == pytest.approx(float(by_hand(*points[0]) - by_hand(*points[1])), rel=1e-10)


def test_bad_input():
    with pytest.raises(nsm.InputError, match="`summary` must be a function"):
        nsm.RSNLE(PRIOR, SIMULATOR, summary=3)
    with pytest.raises(nsm.InputError, match=r"`summary` must turn \(m, n, d_x\) into \(m, d_s\)"):
        method(summary=lambda sets: sets).build_posterior(observed(N))
    with pytest.raises(nsm.InputError, match="not finite for 1 of 1"):
        method(summary=lambda sets: np.full((len(sets), 1), np.nan)).build_posterior(observed(N))
    with pytest.raises(nsm.InputError, match="`adjustment` must not be negative"):
        method(adjustment=-1.0)
