import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes.errors import ConvergenceError, InputError
from nsmbayes.samplers import require_converged, sample_slice
from nsmbayes.samplers.slice import _window_ends

CHAINS = 8
SIDES = np.repeat([-1.0, 1.0], CHAINS // 2)


def _two_modes(position, data):
    """In coordinates z, two normal distributions at z_0 = -separation and separation; not a number below the wall."""
    z = jnp.linalg.solve(data["root"], position - data["mean"])
    log_prob = jnp.logaddexp(-0.5 * (z[0] - data["separation"]) ** 2, -0.5 * (z[0] + data["separation"]) ** 2)
    log_prob = (log_prob - 0.5 * z[1] ** 2).astype(jnp.float32)  # as that of a network in single precision
    return jnp.where(z[0] > data["wall"], log_prob, jnp.nan)


def _sample(start, *, separation=0.0, wall=-np.inf, mean=(0.0, 0.0), root=((1.0, 0.0), (0.0, 1.0))):
    data = {"separation": separation, "wall": wall, "mean": np.array(mean), "root": np.array(root)}
    return sample_slice(_two_modes, start, data, warmup=500, draws=2000, key=jax.random.key(0))


def _on_the_line(z):
    return np.column_stack([z, np.zeros(CHAINS)])


def test_shapes_and_what_slicing_has_no_use_for():
    result = _sample(_on_the_line(SIDES))
    assert result.positions.shape == (CHAINS, 2000, 2)
    assert result.positions.dtype == np.float64
    assert (result.acceptance_rate == 1).all()
    assert (result.divergences == 0).all()
    assert result.acceptance_rate.shape == result.divergences.shape == (CHAINS,)
    assert result.r_hat.shape == result.ess_bulk.shape == (2,)


def test_chains_in_different_modes_are_not_accepted():
    apart = _sample(_on_the_line(20 * SIDES), separation=20.0)
    assert apart.r_hat[0] > 1.5  # rank-normalised, so that it has a largest value
    with pytest.raises(ConvergenceError, match=r"largest R-hat is \d+\.\d+"):
        require_converged(apart)
    # A variance of 1.25, known within 2 % or so from the 5,000 independent draws that these are worth.
    together = _sample(_on_the_line(SIDES), separation=0.5)
    assert require_converged(together).flat.var(axis=0) == pytest.approx([1.25, 1.0], rel=0.1)


def test_nan_is_a_density_of_zero():
    walled = _sample(_on_the_line(SIDES + 2), wall=0.0)
    assert (walled.flat[:, 0] > 0).all()
    # Half a normal distribution has the mean 0.80 and the standard deviation 0.60.
    assert abs(walled.flat[:, 0].mean() - np.sqrt(2 / np.pi)) < 4 * 0.603 / np.sqrt(walled.ess_bulk[0])
    with pytest.raises(InputError, match="finite at every row"):
        _sample(_on_the_line(SIDES), wall=0.0)


def test_finds_scales_far_from_one():
    # Standard deviations of 0.014 and 14 in directions that are not those of the coordinates, from afar.
    mean, root = np.array([5.0, 300.0]), np.array([[0.01, 10.0], [-0.01, 10.0]])
    result = _sample(mean + np.random.default_rng(0).standard_normal((CHAINS, 2)), mean=mean, root=root)
    assert (require_converged(result, max_r_hat=1.02).ess_bulk > 2000).all()
    z = np.linalg.solve(root, (result.flat - mean).T)
    assert np.linalg.norm(np.cov(z) - np.eye(2)) < 0.15


def test_every_window_is_long_enough_to_learn_from():
    assert np.flatnonzero(_window_ends(500, 500, 3)).tolist() == [30, 61, 124, 249, 499]
    assert np.flatnonzero(_window_ends(500, 500, 12)).tolist() == [124, 249, 499]
    assert not _window_ends(5, 10, 1).any()


def test_bad_arguments():
    with pytest.raises(InputError, match="`draws` must be at least 4"):
        sample_slice(_two_modes, np.zeros((1, 1)), (0.0, 0.0), warmup=1, draws=3, key=jax.random.key(0))


def _own_normal(position, data):
    shared, (centre, precision) = data
    return -0.5 * precision * jnp.sum((position - shared - centre) ** 2)


def test_chains_with_densities_of_their_own():
    centre, precision = np.array([-3.0, 0.0, 5.0]), np.array([1.0, 4.0, 0.25])
    result = sample_slice(
        _own_normal,
        np.zeros((3, 1)),
        10.0,
        per_chain_data=(centre, precision),
        warmup=200,
        draws=2000,
        key=jax.random.key(0),
    )
    # ten standard deviations of a mean of 2000 independent draws: slice sampling in one dimension is worth a good part
    error = 10 * precision**-0.5 / np.sqrt(2000)
    assert (np.abs(result.positions[..., 0].mean(axis=1) - 10 - centre) < error).all()
    assert np.allclose(result.positions[..., 0].std(axis=1), precision**-0.5, rtol=0.2)
