"""The adaptive sampler as one compiled program: exact draws of known targets, many at once."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import nsmbayes as nsm
from nsmbayes.losses import Loss
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import Target
from nsmbayes.samplers.compiled import (
    Effort,
    Sampled,
    Start,
    accepted_again,
    reweighted_starts,
    sample_many,
    visited_weights,
)

PRIOR = unconstrained(nsm.GaussianPrior([0.0, 0.0], [4.0, 4.0]))
EFFORT = Effort(chains=2, draws=1000, offers=True)


class Bent(Loss):
    """n (u_0 - m)^2 / 2 + n (u_1 - bend u_0^2)^2 / 2."""

    n: Float[Array, ""]
    m: Float[Array, ""]
    bend: Float[Array, ""]

    def each(self, theta):
        return jnp.stack(
            [self.n / 2 * (theta[0] - self.m) ** 2, self.n / 2 * (theta[1] - self.bend * theta[0] ** 2) ** 2]
        )


AXES = Target(None, Bent(0, 0, 0), 0)


def sampled(*targets: tuple[float, ...], seeds, effort=EFFORT, start=None) -> list[Sampled]:
    """Draws of targets with so many observations, places, bends and learning rates; each as if it were alone."""
    columns = np.array([(*one, *(0.0, 1.0)[len(one) - 2 :]) for one in targets]).T
    start = start or Start(np.zeros(2), 4 * np.eye(2))
    starts = Start(*(np.repeat(part[None], len(targets), 0) for part in start))
    stacked = Target(PRIOR, Bent(*columns[:3]), columns[3])
    found = sample_many(stacked, AXES, starts, np.array(seeds), effort)
    return [found.only(i) for i in range(len(targets))]


def test_gaussian_targets_together():
    """Means within five standard errors, variances within 15 %: a false alarm once in 10,000 runs of the ten values."""
    sizes, places = (5.0, 50.0, 500.0), (-1.0, 0.5, 2.0)
    many = sampled(*zip(sizes, places, strict=True), seeds=[0, 1, 2])
    for n, m, found in zip(sizes, places, many, strict=True):
        variance = 1 / (n + 0.25)
        flat = found.positions.reshape(-1, 2)
        assert found.temperature == 1
        assert found.ess > 1000
        assert found.acceptance.min() > 0.5
        np.testing.assert_allclose(flat.mean(axis=0), [n * m * variance, 0], atol=5 * np.sqrt(variance / 800))
        np.testing.assert_allclose(flat.var(axis=0), variance, rtol=0.15)


def test_a_bent_target_and_another_learning_rate():
    """E u_1 = bend E u_0^2, up to what the prior pulls; and what was visited serves lower rates."""
    n, bend = 20.0, 1.5
    [found] = sampled((n, 0.0, bend), seeds=[3])
    grid = np.linspace(-6, 9, 1201)
    u0, u1 = np.meshgrid(grid, grid, indexing="ij")
    for beta in (1.0, 0.25):
        logs = -(u0**2 + u1**2) / 8 - beta * n / 2 * (u0**2 + (u1 - bend * u0**2) ** 2)
        mass = np.exp(logs - logs.max())
        mass /= mass.sum()
        exact = np.array([(mass * u0**2).sum(), (mass * u1).sum()])
        weights = visited_weights(found, beta)
        assert 1 / (weights**2).sum() > 100
        by_visited = weights @ np.c_[found.visited[:, 0] ** 2, found.visited[:, 1]]
        np.testing.assert_allclose(by_visited, exact, rtol=0.25)
        if beta == 1:
            flat = found.positions.reshape(-1, 2)
            np.testing.assert_allclose([(flat[:, 0] ** 2).mean(), flat[:, 1].mean()], exact, rtol=0.15)
    mean, covariance = reweighted_starts(found.only(None), np.ones(1))
    weights = visited_weights(found, 1.0)
    np.testing.assert_allclose(mean[0], weights @ found.visited, atol=1e-12)
    np.testing.assert_allclose(covariance[0], np.cov(found.visited.T, aweights=weights, ddof=0), atol=1e-12)


def test_the_same_seed_gives_the_same_draws_alone_and_with_others():
    one, other = (30.0, 1.0), (8.0, -2.0)
    [alone] = sampled(one, seeds=[7])
    _, together = sampled(other, one, seeds=[1, 7])
    np.testing.assert_array_equal(alone.positions, together.positions)


def test_on_a_gpu_targets_are_stacked(monkeypatch):
    """The path of a GPU, taken on a processor: the same distribution."""
    from nsmbayes.samplers import compiled

    monkeypatch.setattr(compiled, "on_processor", lambda: False)
    found = sampled((5.0, -1.0), (50.0, 0.5), seeds=[0, 1])
    for n, m, one in zip((5.0, 50.0), (-1.0, 0.5), found, strict=True):
        variance = 1 / (n + 0.25)
        np.testing.assert_allclose(
            one.positions.reshape(-1, 2).mean(axis=0), [n * m * variance, 0], atol=5 * np.sqrt(variance / 800)
        )


def test_a_start_from_which_nothing_is_reached_is_told():
    far = Start(np.array([40.0, 40.0]), 1e-4 * np.eye(2))
    [found] = sampled((1e5, 0.0), seeds=[0], effort=Effort(chains=2, draws=100, stages=2), start=far)
    assert found.temperature < 1


@pytest.mark.parametrize("wrong", [0.5])
def test_a_planted_bug_is_caught(wrong, monkeypatch):
    """A proposal whose density is off by a factor that depends on the place: variances are no longer right."""
    from nsmbayes.samplers import compiled

    right = compiled.TracedStudents.log_prob
    monkeypatch.setattr(compiled.TracedStudents, "log_prob", lambda self, u: right(self, u) * wrong)
    [found] = sampled((50.0, 0.5), seeds=[0], effort=Effort(chains=2, draws=1001))
    assert not np.allclose(found.positions.reshape(-1, 2).var(axis=0), 1 / 50.25, rtol=0.15)


def test_chains_that_stay_in_a_state_are_worth_little():
    """Two chains of four draws: one that moves always, and one that never does."""
    from nsmbayes.samplers import compiled

    last = jnp.asarray([[1, 2, 3, 4], [0, 0, 0, 0]])
    np.testing.assert_allclose(compiled._distinct(last), 64 / (4 + 16))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_same_proposals_serve_another_learning_rate(on_gpu, monkeypatch):
    """Means within five standard errors, variances within 15 %, as above; and not those of the first learning rate."""
    from nsmbayes.samplers import compiled

    monkeypatch.setattr(compiled, "on_processor", lambda: not on_gpu)
    sizes, places, betas = np.array([5.0, 50.0]), np.array([-1.0, 0.5]), np.array([0.7, 0.6])
    first = sampled(*zip(sizes, places, strict=True), seeds=[0, 1])
    stacked = Sampled(*map(np.stack, zip(*first, strict=True)))
    again = accepted_again(stacked, betas, np.array([5, 6]))
    assert again.positions.shape == stacked.positions.shape
    for i, (n, m, beta) in enumerate(zip(sizes, places, betas, strict=True)):
        variance, flat = 1 / (beta * n + 0.25), again.positions[i].reshape(-1, 2)
        np.testing.assert_allclose(flat.mean(axis=0), [beta * n * m * variance, 0], atol=5 * np.sqrt(variance / 500))
        np.testing.assert_allclose(flat.var(axis=0), variance, rtol=0.15)
        assert not np.allclose(first[i].positions.reshape(-1, 2).var(axis=0), variance, rtol=0.15)
        assert 400 < again.ess[i] < first[i].ess
        states = {tuple(u) for u in again.offered[i].reshape(-1, 2)}
        assert all(tuple(u) in states for u in flat)


def test_what_is_offered_is_kept_if_asked_for():
    [kept], [not_kept] = (
        sampled((5.0, 1.0), seeds=[0], effort=EFFORT._replace(offers=offers)) for offers in (True, False)
    )
    np.testing.assert_array_equal(kept.positions, not_kept.positions)
    assert kept.offered.shape == (2, 1001, 2)
    assert not_kept.offered.size == not_kept.offered_losses.size == 0


def test_some_of_many_are_replaced():
    first, other = (
        Sampled(*map(np.stack, zip(*sampled((5.0, m), (9.0, m), seeds=[0, 1]), strict=True))) for m in (0, 1)
    )
    replaced = first.replaced(np.array([1]), other.only([0]))
    for part, before, new in zip(replaced, first, other, strict=True):
        np.testing.assert_array_equal(part[0], before[0])
        np.testing.assert_array_equal(part[1], new[0])


def test_a_start_is_regular_where_one_draw_carries_all_the_weight():
    """An adaptation that stops far from a narrow target: another attempt begins with a covariance that is not zero."""
    [found] = sampled(
        (1e5, 0.0), seeds=[0], effort=EFFORT._replace(stages=4), start=Start(np.full(2, 40.0), 0.01 * np.eye(2))
    )
    assert found.temperature < 1
    many = Sampled(*(np.asarray(part)[None] for part in found))
    assert (visited_weights(many, np.ones(1)) ** 2).sum() > 0.99
    start = reweighted_starts(many, np.ones(1))
    assert np.linalg.det(start.covariance[0]) > 0
    [again] = sampled((1e5, 0.0), seeds=[1], start=Start(start.mean[0], start.covariance[0]))
    assert np.isfinite(again.visited).all()
