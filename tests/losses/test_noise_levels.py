import itertools

import numpy as np
import pytest
from scipy import integrate, stats

import nsmbayes as nsm
from nsmbayes.losses.noise_levels import DEFAULT_NOISE_LEVELS, check_noise_levels, noisy_points, orthonormal


def gaussian_moment(powers):
    """E prod e_i^p_i for independent standard normals."""
    return np.prod([0.0 if p % 2 else np.prod(np.arange(p - 1, 0, -2, dtype=float)) for p in powers])


def average(points, function):
    """What the rule makes of sum_l coefficient_l E f(h_l, y_i + h_l e), for each observation."""
    h = np.broadcast_to(points.h, points.y.shape[:2]).ravel()
    values = function(h, points.y.reshape(len(h), -1))
    return (points.quadrature_weight * values[points.node_index]).sum(axis=1)


def test_axes_are_those_of_a_qr_decomposition():
    """Up to their sign, which does not matter: nodes are on both sides."""
    rows = np.random.default_rng(0).standard_normal((2, 50, 4, 6))
    wanted = np.linalg.qr(rows.swapaxes(2, 3))[0].swapaxes(2, 3)
    np.testing.assert_allclose(np.abs(orthonormal(rows)), np.abs(wanted), atol=1e-10)


@pytest.mark.parametrize(("d", "degrees"), [(2, {0, 1, 2, 3}), (4, {0, 1, 2, 3}), (6, {0, 1, 3})])
def test_nodes_integrate_polynomials_exactly(d, degrees):
    """All of degree up to three; where four axes stand for more, the odd ones and constants."""
    points = noisy_points((1.0,), np.zeros((7, d)))
    assert points.y.shape[1] == 7 * (2 * min(d, 4) + 1)
    for powers in itertools.product(range(4), repeat=d):
        if sum(powers) in degrees:
            values = average(points, lambda h, y, p=powers: np.prod(y ** np.asarray(p), axis=1))
            np.testing.assert_allclose(values, gaussian_moment(powers), atol=1e-9)


def test_degree_three_is_not_degree_four():
    """The test above can fail: one degree more is not integrated for each observation."""
    values = average(noisy_points((1.0,), np.zeros((7, 3))), lambda h, y: y[:, 0] ** 4)
    assert np.abs(values - 3).min() > 1e-3


@pytest.mark.parametrize("d", [2, 3, 6])
def test_errors_of_observations_average_out(d):
    """A narrow bump, 20,000 observations at one place: each is badly off, their mean is within 5 standard errors.

    So it is for one seed in two million; if all had the same nodes it would not be.
    """
    y = np.full((20_000, d), 0.3)

    def bump(_, y):
        return 1 / (1 + ((y - 1) ** 2).sum(axis=1))

    values = average(noisy_points((1.0,), y), bump)
    exact = bump(None, 0.3 + np.random.default_rng(0).standard_normal((2_000_000, d)))
    error = np.hypot(values.std() / np.sqrt(len(y)), exact.std() / np.sqrt(len(exact)))
    assert abs(values.mean() - exact.mean()) < 5 * error
    assert error < 0.02 * exact.mean()
    assert abs(values[0] - exact.mean()) > 5 * error


@pytest.mark.parametrize("h", [0.1, 0.7, 3.0])
def test_lattices_integrate_smooth_functions_of_the_noise(h):
    """A bump as narrow as the noise, at observations anywhere: against adaptive quadrature, within 3e-4."""
    y = np.array([-0.31, 0.0, 0.5, 1.234, 7.0])[:, None]

    def bump(x):
        return 1 / (1 + ((x - 0.4) / h) ** 2)

    found = average(noisy_points((h,), y), lambda _, y: bump(y[:, 0])) / h**2

    def exact(at):
        return integrate.quad(lambda e: bump(at + h * e) * stats.norm.pdf(e), -10, 10, epsabs=1e-10)[0]

    np.testing.assert_allclose(found, [exact(at) for at in y[:, 0]], atol=3e-4)


def test_lattices_are_shared():
    """A thousand times the observations need less than twice the points."""
    rng = np.random.default_rng(0)
    few, many = (noisy_points(DEFAULT_NOISE_LEVELS, rng.standard_normal((n, 1))) for n in (100, 100_000))
    assert many.y.size <= 2 * few.y.size
    assert many.total_weights().sum() == pytest.approx(1000 * few.total_weights().sum())


def test_observations_at_any_distance_keep_their_share():
    y = np.array([0.0, 1e3, -1e8, 1e20, 1e300])[:, None]
    points = noisy_points((0.5, 1.0), y)
    np.testing.assert_allclose(points.quadrature_weight.sum(axis=1), points.quadrature_weight[0].sum())
    near = np.abs(points.y.reshape(-1)[points.node_index] - y) <= 5 + 1e-12 * np.abs(y)
    assert near.all()
    assert np.isfinite(points.y).all()


@pytest.mark.parametrize("d", [1, 2])
def test_coefficients_integrate_over_log_h(d):
    """A Gaussian shifted by one: integral of h^2 / (1 + h^2)^2 over log h is 1/2, the divergence KL."""
    points = noisy_points(tuple(0.05 * 2.0**i for i in range(12)), np.zeros((3, d)))
    np.testing.assert_allclose(average(points, lambda h, _: 1 / (1 + h**2) ** 2), 0.5, rtol=0.01)


@pytest.mark.parametrize("d", [1, 3])
def test_level_zero_is_the_plain_loss(d):
    y = np.random.default_rng(0).standard_normal((7, d))
    points = noisy_points((0,), y)
    assert points.h.tolist() == [[0]]
    assert (points.y[0] == y).all()
    assert points.total_weights().tolist() == [[1] * 7]


@pytest.mark.parametrize("levels", [(), (-1.0,), (0.0, 1.0), (2.0, 1.0), (1.0, 1.0), (np.nan,), "high"])
def test_bad_levels(levels):
    with pytest.raises(nsm.InputError, match="`noise_levels`"):
        noisy_points(levels, np.zeros((1, 1)))


def test_several_rules_are_the_mean_of_each():
    y = np.random.default_rng(3).standard_normal((20, 2))

    def bump(h, y):
        return h / (1 + (y**2).sum(axis=1))

    together = noisy_points((0.5, 1.0), y, rules=3, seed=4)
    assert together.y.shape == (2, 3 * 20 * 5, 2)
    np.testing.assert_allclose(
        average(together, lambda h, y: h**0), average(noisy_points((0.5, 1.0), y), lambda h, y: h**0)
    )
    spread = [average(noisy_points((0.5, 1.0), y, seed=seed), bump).sum() for seed in range(200)]
    averaged = [average(noisy_points((0.5, 1.0), y, rules=8, seed=seed), bump).sum() for seed in range(200)]
    assert np.mean(spread) == pytest.approx(np.mean(averaged), abs=5 * np.std(spread) / np.sqrt(200))
    assert np.std(averaged) == pytest.approx(np.std(spread) / np.sqrt(8), rel=0.3)


def test_very_many_levels_are_refused_in_few_words():
    with pytest.raises(nsm.InputError, match="increasing positive noise levels") as caught:
        check_noise_levels(np.ones(3000))
    assert len(str(caught.value)) < 300
