"""Every bound against what it bounds: suprema on dense grids, derivatives by autodiff far out, at any theta."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.builders import data, flow_of, maf, mdn, noisy_flow, shaken, third_power
from support.reference import random_family

from nsmbayes.losses import NSMSetting
from nsmbayes.robustness.bounds.family import family_bounds
from nsmbayes.robustness.bounds.flow import flow_growth, noisy_flow_growth
from nsmbayes.robustness.bounds.growth import degree, largest_zeta, loss_bounds, metric
from nsmbayes.robustness.bounds.mixture import mixture_growth
from nsmbayes.robustness.bounds.networks import interval, network_bounds
from nsmbayes.robustness.bounds.rounding import down, eigenvalue_range, norm, up
from nsmbayes.robustness.bounds.weights import weight_bounds
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import Frame
from nsmbayes.surrogates.sbi import Affine, MaskedAffine, Reorder
from nsmbayes.weights import IMQ, Constant, PlateauIMQ, SquaredExponential, Weighting

WEIGHTS = [
    IMQ(zeta=2.0),
    IMQ(zeta=1.0),
    IMQ(zeta=0.3),
    PlateauIMQ(radius=2.0, zeta=1.0),
    PlateauIMQ(radius=0.5, zeta=2.0),
    SquaredExponential(lengthscale=0.7),
    Constant(),
]
R = np.concatenate([np.linspace(0, 30, 60_001), np.geomspace(30, 1e9, 2000)])


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_suprema_under_a_weight_are_sharp(x64, weight):
    bounds = weight_bounds(weight)
    w2, slope = map(np.asarray, jax.vmap(weight.squared)(jnp.asarray(R)))
    w = np.sqrt(w2)
    for exponent in (1, 2, 2.5):
        for k in (0, 1, 2, 3):
            for a, b in ((0.0, 1.0), (3.0, 0.5), (1.0, 20.0)):
                bound = bounds.sup(exponent, k, a, b)
                if not bounds.bounds_growth(exponent, k):
                    assert math.isinf(bound)
                    assert (w[-1] ** exponent * (a + b * R[-1]) ** k) > 1e3
                    continue
                values = w**exponent * (a + b * R) ** k
                assert values.max() <= bound <= 1.0001 * values.max()
                for beyond in R[[1000, 9000, 60_500]]:
                    found = values[beyond <= R].max()
                    assert found <= bounds.sup(exponent, k, a, b, beyond=float(beyond)) <= 1.01 * found + 1e-150
    factor, exponent = bounds.slope
    assert (np.abs(slope) <= factor * w**exponent + 1e-300).all()
    for bound, found in [
        (bounds.steepest, np.abs(slope).max()),
        (bounds.slope_over_weight, (np.abs(slope) / np.maximum(w, 1e-200)).max()),
    ]:
        assert found <= bound <= 1.0001 * found + 1e-300
    for beyond in (0, 9000, 60_500):
        steepest = (np.abs(slope) / np.maximum(w, 1e-200))[beyond:].max()
        assert steepest <= bounds.slope_over_weight_beyond(float(R[beyond])) <= bounds.slope_over_weight
    assert (bounds.value(R) >= w).all()
    np.testing.assert_allclose(bounds.value(R), w, rtol=1e-8, atol=1e-150)


def test_whether_a_weight_bounds_growth_is_decided_exactly():
    for power in range(1, 40):
        zeta = 2 / power
        while not weight_bounds(IMQ(zeta=zeta)).bounds_growth(1, power):
            zeta = math.nextafter(zeta, 0)
        assert abs(zeta - 2 / power) < 1e-15
        assert not weight_bounds(IMQ(zeta=zeta * (1 + 1e-12))).bounds_growth(1, power)


def test_an_unknown_weight_has_no_bounds():
    class Mine(IMQ):
        """Could do anything."""

    assert weight_bounds(Mine(zeta=1.0)) is None


def test_rounding_goes_outward():
    for value in (-3.0, 0.0, 1e-300, 7.0, 1e300):
        assert down(value) < value < up(value)
    A = np.random.default_rng(0).standard_normal((5, 5))
    low, high = eigenvalue_range(A @ A.T)
    values = np.linalg.svd(A)[1] ** 2
    assert low < values.min()
    assert values.max() < high
    assert np.linalg.svd(A)[1][0] < norm(A)


def random_layers(rng, widths):
    return [(rng.standard_normal((b, a)), rng.standard_normal(b)) for a, b in itertools.pairwise(widths)]


def run(layers, z):
    for i, (W, b) in enumerate(layers):
        z = W @ (jnp.tanh(z) if i else z) + b
    return z


@pytest.mark.parametrize("depth", [1, 3])
def test_network_bounds_hold_and_one_of_them_is_nearly_met(x64, depth):
    rng = np.random.default_rng(depth)
    layers = random_layers(rng, (3, *(4,) * depth, 2))
    bounds = network_bounds(layers, 2)
    z = jnp.asarray(rng.standard_normal((4000, 3)) * np.geomspace(0.01, 100, 4000)[:, None])

    def f_and_derivatives(z):
        return run(layers, z), jax.jacfwd(run, 1)(layers, z)[:, :2], jax.hessian(run, 1)(layers, z)[:, :2, :2]

    f, first, second = jax.jit(jax.vmap(f_and_derivatives))(z)
    assert (f >= bounds.low).all()
    assert (f <= bounds.high).all()
    assert (jnp.abs(first) <= bounds.first).all()
    assert (jnp.abs(second) <= bounds.second).all()
    if depth == 1:  # saturated units reach the ends of the interval
        corner = jax.vmap(lambda h: layers[1][0] @ h + layers[1][1])(jnp.asarray(np.sign(layers[1][0])))
        np.testing.assert_allclose(np.diag(corner), bounds.high, rtol=1e-6)
    inside = jax.jit(jax.vmap(lambda z: run(layers, z)))(jnp.asarray(rng.uniform(-0.2, 0.2, (500, 3))))
    low, high = interval(layers, 0.2)
    assert (low <= inside.min(axis=0)).all()
    assert (inside.max(axis=0) <= high).all()


def test_a_masked_network_keeps_its_zeros():
    """A bound that forgot the mask would let every coordinate depend on every other."""
    W = np.tril(np.ones((3, 3)), -1)
    bounds = network_bounds([(W, np.zeros(3)), (np.eye(3), np.zeros(3))], 3)
    assert (bounds.first[np.triu_indices(3)] == 0).all()


def far_points(d, count, seed=0):
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((count, d))
    axes = rng.random(count) < 0.3
    directions[axes] *= rng.random((axes.sum(), d)) < 0.4  # some along axes and planes, where flows grow fastest
    lengths = np.geomspace(1e-2, 1e5, count)
    return directions * lengths[:, None] / np.maximum(np.linalg.norm(directions, axis=1), 1e-9)[:, None]


def assert_growth_holds(surrogate, growth, frame, level, y, thetas):
    derivatives = jax.jit(lambda theta, y: surrogate.derivatives_at(theta, frame, level)(y))
    rho = growth.a + growth.b * np.linalg.norm(y, axis=1)

    def at(polynomial):
        return np.polynomial.polynomial.polyval(rho, polynomial)

    tightest = np.inf
    for theta in thetas:
        score, laplacian = map(np.asarray, derivatives(jnp.asarray(theta), jnp.asarray(y)))
        size = np.linalg.norm(score, axis=1)
        assert (size <= at(growth.score)).all()
        assert (laplacian <= at(growth.laplacian_above)).all()
        assert (-laplacian <= at(growth.laplacian_below)).all()
        assert (size**2 + 2 * laplacian <= at(growth.together)).all()
        tightest = min(tightest, (at(growth.score) / size).min())
    return tightest


def test_mixtures_grow_no_faster_than_proved(x64):
    """An ensemble of two networks at a noise level; other dimensions are in the tests of whole losses."""
    d_x, level = 1, 0.5
    surrogate, x = mdn(d_x, ensemble=2), data(d_x)
    centre = fit_location_scatter(x)
    frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
    growth = mixture_growth(surrogate, frame, np.asarray(centre.location), level)
    thetas = np.random.default_rng(1).standard_normal((12, 2)) * np.geomspace(0.1, 1e6, 12)[:, None]
    assert assert_growth_holds(surrogate, growth, frame, level, far_points(d_x, 800), thetas) < 300


@pytest.mark.parametrize(("d_x", "transforms"), [(1, 2), (3, 2)])
def test_flows_grow_no_faster_than_proved(x64, d_x, transforms):
    surrogate, x = maf(d_x, transforms=transforms), data(d_x)
    centre = fit_location_scatter(x)
    frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
    growth = flow_growth(surrogate, frame, np.asarray(centre.location))
    thetas = np.random.default_rng(1).standard_normal((6, 2)) * np.geomspace(0.1, 1e6, 6)[:, None]
    assert_growth_holds(surrogate, growth, frame, 0.0, far_points(d_x, 800), thetas)
    expected = 2.0 if d_x == 1 else 2 / (transforms + 1)
    assert largest_zeta(growth) == pytest.approx(expected, rel=1e-12)


def test_flows_that_know_the_noise_grow_no_faster_than_proved(x64):
    surrogate, x, level = noisy_flow(3), data(3), 0.5
    centre = fit_location_scatter(x)
    frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
    growth = noisy_flow_growth(surrogate, frame, np.asarray(centre.location), level)
    thetas = np.random.default_rng(1).standard_normal((6, 2)) * np.geomspace(0.1, 1e6, 6)[:, None]
    assert_growth_holds(surrogate, growth, frame, level, far_points(3, 800), thetas)
    assert largest_zeta(growth) == pytest.approx(2 / 3, rel=1e-12)


def test_flows_of_sbi_grow_no_faster_than_proved(x64):
    rng, d, hidden, ranks = np.random.default_rng(0), 3, 6, np.arange(6) % 2

    def affine(mask):
        return Affine(jnp.asarray(rng.standard_normal(mask.shape) * mask), jnp.asarray(rng.standard_normal(len(mask))))

    first, last = ranks[:, None] >= np.arange(d), np.repeat(np.arange(d), 2)[:, None] > ranks
    parts = [MaskedAffine(affine(first), affine(np.ones((hidden, 2))), (), affine(last), 1e-3) for _ in range(2)]
    flow = flow_of(parts[0], Reorder(jnp.array([2, 0, 1])), parts[1])
    frame = Frame(jnp.zeros(d), jnp.eye(d))
    thetas = rng.standard_normal((6, 2)) * np.geomspace(0.1, 1e6, 6)[:, None]
    assert_growth_holds(flow, flow_growth(flow, frame, np.zeros(d)), frame, 0.0, far_points(d, 500), thetas)


def test_two_transforms_in_three_dimensions_grow_with_the_third_power(x64):
    """Why zeta = 1, which Proposition 3 gives for one transform, is not enough for two: zeta <= 2 / (L + 1)."""
    flow, along = third_power()
    frame = Frame(jnp.zeros(3), jnp.eye(3))
    score = jax.jit(lambda x: flow.derivatives(jnp.zeros(2), x, frame.basis).score)
    sizes = [float(jnp.linalg.norm(score(R * along))) for R in (1e3, 1e4)]
    assert np.log10(sizes[1] / sizes[0]) == pytest.approx(3, abs=0.01)
    growth = flow_growth(flow, frame, np.zeros(3))
    assert degree(growth.score) == 3
    assert sizes[1] <= np.polynomial.polynomial.polyval(growth.a + growth.b * 1e4 * np.sqrt(3), growth.score)


@pytest.mark.parametrize(("d_x", "asinh"), [(1, True), (3, False)])
def test_derivatives_of_the_family_are_bounded_as_proved(x64, d_x, asinh):
    family = random_family(d_x, 2, asinh=asinh)
    rng = np.random.default_rng(0)
    basis, theta, change = (rng.standard_normal(s) for s in ((d_x, d_x), (2,), (2, 2)))
    bounds = family_bounds(family, basis, theta, change)
    x = jnp.asarray(far_points(d_x, 3000) + np.asarray(family.scale_x.centre))
    found = jax.jit(jax.vmap(lambda x: family.family_derivatives(x, jnp.asarray(basis))))(x)
    dT = np.linalg.norm(change @ np.asarray(found.grad_T), axis=(1, 2))
    lap_T = np.linalg.norm(np.asarray(found.lap_T) @ change.T, axis=1)
    score = np.linalg.norm(np.einsum("i,nij->nj", theta, found.grad_T) + found.grad_b, axis=1)

    def T_and_b(y):
        z = family.scale_x(jnp.asarray(basis) @ y)
        t = family.T.V @ jnp.tanh(family.T.W @ z + family.T.c) / family.scale_theta.scale
        b = family.b.V[0] @ jnp.tanh(family.b.W @ z + family.b.c) - family.scale_theta.centre @ t
        slope = family.scale_x.slopes(jnp.asarray(basis) @ y)[0]
        return jnp.concatenate([jnp.asarray(change) @ t, (b + jnp.log(slope).sum())[None]])

    y = jnp.linalg.solve(jnp.asarray(basis), x.T).T
    hessians = np.asarray(jax.jit(jax.vmap(jax.hessian(T_and_b)))(y[:600]))
    pairs = [
        (dT, bounds.T.first),
        (lap_T, bounds.T.laplacian),
        (np.sqrt((hessians[:, :2] ** 2).sum(axis=(1, 2, 3))), bounds.T.second),
        (np.linalg.norm(found.grad_b, axis=1), bounds.b.first),
        (np.abs(found.lap_b), bounds.b.laplacian),
        (np.sqrt((hessians[:, 2] ** 2).sum(axis=(1, 2))), bounds.b.second),
        (score, bounds.score),
    ]
    for values, bound in pairs:
        assert values.max() <= bound < 200 * values.max()


@pytest.mark.parametrize("whiten", [True, False])
def test_the_metric_of_a_level_is_the_weights_distance(x64, whiten):
    x = data(3)
    centre = fit_location_scatter(x)
    frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
    if not whiten:
        frame = Frame(jnp.zeros(3), jnp.eye(3))
    basis, level = np.asarray(frame.basis), 0.7
    found = metric(centre, frame, level)
    smoothed = type(centre).from_scatter(
        np.asarray(centre.location), np.asarray(centre.scatter) + level**2 * basis @ basis.T, "mcd"
    )
    points = jnp.asarray(far_points(3, 500) + np.asarray(centre.location))
    r, gradient = jax.jit(jax.vmap(smoothed.distance))(points)
    away = np.linalg.norm(np.linalg.solve(basis, (np.asarray(points) - np.asarray(centre.location)).T), axis=0)
    assert (away <= found.stretch * np.asarray(r)).all()
    assert (np.linalg.norm(np.asarray(gradient) @ basis, axis=1) <= found.steepness).all()


def test_what_is_shaken_is_not_trivial():
    """The builders' networks differ from each other, or the tests above would test one network many times."""
    assert not np.array_equal(mdn(1, seed=0).layers[0].weight, mdn(1, seed=1).layers[0].weight)
    assert shaken(1, 1.0) == 1


@pytest.mark.parametrize("weight", [IMQ(zeta=2.0), PlateauIMQ(radius=2.0, zeta=1.0)], ids=str)
def test_a_single_gaussian_meets_its_bound(x64, weight):
    """With one component everything is known: the bound of the loss must not be far above its supremum."""
    surrogate = mdn(1, components=1, floor=0.9999, ceiling=1.0)
    x = data(1)
    centre = fit_location_scatter(x)
    frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
    growth = mixture_growth(surrogate, frame, np.asarray(centre.location), 0.0)
    bounds = loss_bounds(growth, weight_bounds(weight), metric(centre, frame, 0.0))
    points = np.asarray(centre.location) + np.linspace(-60, 60, 2001)[:, None] * np.asarray(centre.factor)
    loss = NSMSetting(surrogate, Weighting(weight, centre), frame, (0.0,)).loss(points)
    thetas = np.random.default_rng(0).standard_normal((40, 2)) * 1e3
    values = np.asarray(jax.jit(jax.vmap(loss.each))(jnp.asarray(thetas)))
    assert -bounds.low <= values.min()
    assert values.max() <= bounds.high < 60 * values.max()
