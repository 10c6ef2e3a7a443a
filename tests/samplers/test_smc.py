from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nsmbayes._checks import InputError
from nsmbayes.samplers import ConvergenceError, sample_smc

N = 1000
PRIOR_SD = 5.0
traces = 0


class Modes(NamedTuple):
    """Two round normal likelihoods at (-m, -m) and (m, m), and what can go wrong with a loss."""

    m: float = 4.0
    sd: float = 0.3
    wall: float = -np.inf  # the first coordinate below which the loss is `beyond`
    beyond: float = np.nan
    steepness: float = 1.0  # of the gradient, not of the loss
    ripples: float = 0.0
    log_prior_at_wall: float = 0.0


def _log_prior(position, modes):
    return -0.5 * jnp.sum((position / PRIOR_SD) ** 2) + jnp.where(position[0] > modes.wall, 0, modes.log_prior_at_wall)


def _loss(position, modes):
    global traces
    traces += 1
    squares = [jnp.sum((position - centre) ** 2) / (2 * modes.sd**2) for centre in (-modes.m, modes.m)]
    loss = -jnp.logaddexp(-squares[0], -squares[1]) + modes.ripples * jnp.sum(jnp.sin(1e4 * position))
    value = jax.lax.stop_gradient(loss)
    loss = (value + modes.steepness * (loss - value)).astype(jnp.float32)  # as a network in single precision would
    return jnp.where(position[0] > modes.wall, loss, modes.beyond)


def _sample(modes, *, seed=0, beta=1.0, particles=None, **options):
    if particles is None:
        particles = PRIOR_SD * np.random.default_rng(seed).standard_normal((N, 2))
    return sample_smc(_log_prior, _loss, particles, modes, beta=beta, key=jax.random.key(seed), **options)


ONE_MODE = Modes(m=0.0)


def _exact_sd(beta):
    """Of either coordinate, when there is one mode, at zero."""
    return (1 / PRIOR_SD**2 + beta / ONE_MODE.sd**2) ** -0.5


@pytest.fixture(scope="module")
def path():
    return _sample(ONE_MODE, snapshots=[0.5, 0.01])


def test_shapes(path):
    stages = len(path.betas)
    assert path.particles.shape == (stages, N, 2)
    assert path.losses.shape == (stages, N)
    assert all(len(field) == stages for field in path)
    assert all(field.dtype == np.float64 for field in path)
    assert path.acceptance[0] == 1
    assert path.ess[0] == path.founders[0] == N
    assert path.memory[0] == path.log_evidence[0] == 0


def test_stages_are_as_far_apart_as_asked_and_stop_where_asked(path):
    assert (np.diff(path.betas) > 0).all()
    assert {0.0, 0.01, 0.5, 1.0} <= set(path.betas.tolist())
    free = ~np.isin(path.betas, [0.0, 0.01, 0.5, 1.0])
    assert path.ess[free] == pytest.approx(np.full(free.sum(), N / 2), rel=1e-3)
    assert (path.ess > 0.499 * N).all()
    assert len(_sample(ONE_MODE, ess=0.9).betas) > 2 * len(_sample(ONE_MODE).betas)


def test_particles_really_move(path):
    assert (path.acceptance > 0.6).all()
    assert (np.abs(path.memory) < 0.1).all()
    assert (path.founders == N).all()
    assert len(np.unique(path.particles[-1], axis=0)) > 0.99 * N


def test_every_stage_is_the_posterior_at_its_beta(path):
    # For all stages and both coordinates together, one key in 1,000 goes beyond.
    for beta, particles in zip(path.betas, path.particles, strict=True):
        sd = np.sqrt(np.mean(particles**2, axis=0)) / (_exact_sd(beta) if beta else PRIOR_SD)
        assert (np.abs(sd - 1) < 4 / np.sqrt(2 * N)).all()


@pytest.mark.parametrize("beta", [1e-4, 0.007, 0.02, 0.3, 0.5, 0.8, 1.0])
def test_posterior_between_the_stages(path, beta):
    sample = path.at(beta)
    assert sample.beta == beta
    assert sample.weights.sum() == pytest.approx(1)
    assert sample.ess == pytest.approx(1 / np.sum(sample.weights**2))
    assert N / 2 * 0.99 < sample.ess <= N * (1 + 1e-12)
    variance = sample.weights @ sample.particles**2 / _exact_sd(beta) ** 2
    assert (np.abs(variance - 1) < 4 * np.sqrt(2 / sample.ess)).all()  # one key in 8,000 goes beyond


def test_a_stage_itself_has_equal_weights(path):
    sample = path.at(0.5)
    assert np.ptp(sample.weights) == 0
    assert np.array_equal(sample.particles, path.particles[path.betas == 0.5][0])


def test_log_evidence(path):
    # exp(-loss) is 2 exp(-|theta|^2 / 2 sd^2); over 50 keys the estimate scatters by 0.07 around the exact value.
    exact = 2 * np.log(_exact_sd(1.0) / PRIOR_SD) + np.log(2)
    assert path.log_evidence[-1] == pytest.approx(exact, abs=0.3)


def test_no_answer_beyond_the_path(path):
    with pytest.raises(InputError, match="between 0 and 1"):
        path.at(1.01)
    with pytest.raises(InputError, match="between 0 and 1"):
        path.at(-0.01)


def test_nothing_but_the_shapes_asks_for_a_compilation(path):
    before = traces
    other = _sample(ONE_MODE._replace(sd=0.05), beta=0.7, ess=0.8, moves=5, snapshots=[0.3], seed=1)
    assert len(other.betas) > len(path.betas)
    assert traces == before


def test_the_key_decides(path):
    again = _sample(ONE_MODE, snapshots=[0.5, 0.01])
    assert all(np.array_equal(a, b) for a, b in zip(again, path, strict=True))


def test_both_of_two_modes_in_proportion():
    path = _sample(Modes())
    final = path.particles[-1]
    right = final[:, 0] > 0
    # Over 60 keys the share scatters by 0.035 around a half, which is what the founders say; 4 errors are exceeded by
    # one key in 16,000.
    assert 100 < path.founders[-1] < 400
    assert abs(right.mean() - 0.5) < 4 * 0.5 / np.sqrt(path.founders[-1])
    # In either mode 400 particles or more: standard deviations known within 3.5 %.
    mode_sd = (1 / PRIOR_SD**2 + 1 / 0.3**2) ** -0.5
    for side in (right, ~right):
        assert final[side].std(axis=0) == pytest.approx([mode_sd] * 2, rel=0.14)


@pytest.mark.parametrize("beyond", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_is_infinite(beyond):
    wall = 2.0  # only a third of the prior draws have a finite loss
    path = _sample(ONE_MODE._replace(sd=1.0, wall=wall, beyond=beyond))
    assert np.isinf(path.losses[0]).mean() == pytest.approx(0.655, abs=0.06)
    assert np.isfinite(path.losses[1:]).all()
    sd = (1 / PRIOR_SD**2 + 1) ** -0.5
    exact = stats.truncnorm(wall / sd, np.inf, scale=sd)
    final = path.particles[-1]
    assert (final[:, 0] > wall).all()
    assert abs(final[:, 0].mean() - exact.mean()) < 4 * exact.std() / np.sqrt(path.ess[-1])
    assert abs(final[:, 1].mean()) < 4 * sd / np.sqrt(path.ess[-1])
    # The prior mean of exp(-loss) counts what lies behind the wall as zero; over 50 keys it scatters by 0.08.
    log_evidence = 2 * np.log(sd / PRIOR_SD) + np.log(2 * stats.norm.sf(wall / sd))
    assert path.log_evidence[-1] == pytest.approx(log_evidence, abs=0.35)
    little = path.at(path.betas[1] / 2)
    assert little.weights[np.isinf(path.losses[0])].max() == 0
    assert np.isclose(little.weights.sum(), 1)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        # No trajectory is accepted; the steps get so small that nothing changes; particles stay in their ripple.
        (ONE_MODE._replace(steepness=1e8), r"froze between beta = 0 and .* \d\.\d% of the moves were accepted"),
        (ONE_MODE._replace(steepness=1e3), r"froze .* 100\.0% of the particles are distinct, .* correlation of 1\.00"),
        (ONE_MODE._replace(ripples=200.0), r"Too few lines of descent .* from 1\d\.\d of 1000 particles"),
    ],
    ids=["rejected", "tiny steps", "ripples"],
)
def test_a_frozen_population_is_not_returned(modes, message):
    with pytest.raises(ConvergenceError, match=message):
        _sample(modes)


def test_impossible_starts():
    with pytest.raises(InputError, match="`loss` is finite at 0 of 1000 rows"):
        _sample(Modes(wall=np.inf))
    with pytest.raises(InputError, match=r"`log_prior` must be finite at every row .* it is -inf at row"):
        _sample(Modes(wall=0.0, log_prior_at_wall=-np.inf))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": 0.0}, "`beta` must be positive"),
        ({"moves": 0}, "`moves` must be at least 1"),
        ({"ess": 1.0}, r"`ess` must lie in \[0, 1\)"),
        ({"ess": 0.0001}, "`ess` must leave at least one particle"),
        ({"snapshots": [0.5, 2.0]}, "`snapshots` must not go beyond `beta` = 1; got 2"),
        ({"snapshots": [-1.0]}, "`snapshots` must be positive"),
        ({"particles": np.zeros((99, 2))}, "`initial_particles` needs at least 100 rows; got 99"),
        ({"particles": np.zeros((120, 13))}, "`initial_particles` needs at least 130 rows for 13 dimensions; got 120"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        _sample(ONE_MODE, **arguments)
