import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes.errors import InputError
from nsmbayes.scatter import LocationScatter, fit_location_scatter
from nsmbayes.weights import IMQ, Constant, PlateauIMQ, SquaredExponential, evaluate

WEIGHTS = [IMQ(), IMQ(zeta=2.0), PlateauIMQ(), SquaredExponential(), Constant()]


def random_centre(d, seed=0, unit=1.0):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d))
    return LocationScatter.from_scatter(
        unit * rng.standard_normal(d), unit**2 * (root @ root.T + 0.1 * np.eye(d)), "mcd"
    )


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_distance_is_mahalanobis_and_its_gradient(d, x64):
    centre = random_centre(d)
    x = jnp.asarray(np.random.default_rng(1).standard_normal((50, d)) * 3)
    inverse = np.linalg.inv(centre.scatter)

    def naive(x):
        return jnp.sqrt((x - centre.location) @ inverse @ (x - centre.location))

    r, gradient = jax.vmap(centre.distance)(x)
    np.testing.assert_allclose(r, jax.vmap(naive)(x), rtol=1e-10)
    np.testing.assert_allclose(gradient, jax.vmap(jax.grad(naive))(x), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(centre.factor @ centre.factor.T, centre.scatter, rtol=1e-12, atol=1e-13)
    assert (np.triu(centre.factor, 1) == 0).all()


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_gradient_of_the_weight_against_a_naive_one(weight, x64):
    centre = random_centre(3)
    inverse = np.linalg.inv(centre.scatter)
    x = jnp.asarray(np.random.default_rng(2).standard_normal((100, 3)) * 4)

    def naive(x):
        s = (x - centre.location) @ inverse @ (x - centre.location)
        if isinstance(weight, IMQ):
            return (1 + s) ** (-2 / weight.zeta)
        if isinstance(weight, PlateauIMQ):
            t = jnp.maximum(jnp.sqrt(s) - weight.radius, 0)
            return (1 + t**2) ** (-2 / weight.zeta)
        return jnp.exp(-s / weight.lengthscale**2) if isinstance(weight, SquaredExponential) else 0 * s + 1

    w2, gradient = jax.vmap(lambda x: evaluate(weight, centre, x))(x)
    np.testing.assert_allclose(w2, jax.vmap(naive)(x), rtol=1e-10)
    np.testing.assert_allclose(gradient, jax.vmap(jax.grad(naive))(x), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_never_nan(weight, unit, dtype, x64):
    centre = random_centre(2, unit=unit)
    largest = float(jnp.finfo(dtype).max)
    sizes = [0, 1e-300, 1e-38, 1e-9, 1, 1e9, 1e20, 1e38, largest]
    sizes += [1e150, 1e300] if dtype == jnp.float64 else []
    x = np.array([[a * s, b * t] for a in sizes for b in sizes for s in (1, -1) for t in (1, -1)])
    points = jnp.concatenate([jnp.asarray(x, dtype), jnp.asarray(centre.location, dtype)[None]])
    r, gradient = jax.vmap(centre.distance)(points)
    assert r.dtype == gradient.dtype == dtype
    assert not np.isnan(r).any()
    assert np.isfinite(gradient).all()
    w2, slope = jax.vmap(lambda x: evaluate(weight, centre, x))(points)
    assert np.isfinite(w2).all()
    assert np.isfinite(slope).all()
    assert ((w2 >= 0) & (w2 <= 1)).all()


def test_the_difference_of_two_huge_numbers(x64):
    centre = LocationScatter.from_scatter(np.array([-1.7e308]), np.array([[1.0]]), "mad")
    r, gradient = centre.distance(jnp.array([1.7e308]))
    assert r == np.inf
    assert gradient == 1
    assert evaluate(IMQ(), centre, jnp.array([1.7e308])) == (0, 0)


def test_far_points_keep_their_digits(x64):
    centre = random_centre(2)
    direction = np.array([0.6, -0.8])
    r, gradient = centre.distance(jnp.asarray(centre.location + 1e200 * direction))
    inverse = np.linalg.inv(centre.scatter)
    np.testing.assert_allclose(r, 1e200 * np.sqrt(direction @ inverse @ direction), rtol=1e-12)
    np.testing.assert_allclose(gradient, inverse @ direction / np.sqrt(direction @ inverse @ direction), rtol=1e-12)


def test_zero_distance_has_zero_gradient(x64):
    centre = random_centre(3)
    r, gradient = centre.distance(jnp.asarray(centre.location))
    assert r == 0
    assert (gradient == 0).all()


def test_a_large_offset_costs_nothing(x64):
    scatter = np.array([[2.0]])
    here, there = (LocationScatter.from_scatter(np.array([a]), scatter, "mad") for a in (0.0, 1e15))
    assert here.distance(jnp.array([3.0]))[0] == there.distance(jnp.array([1e15 + 3]))[0]


def test_strict_promotion(x64):
    centre = random_centre(2)
    with jax.numpy_dtype_promotion("strict"):
        for weight in WEIGHTS:
            w2, gradient = evaluate(weight, centre, jnp.ones(2, jnp.float32))
            assert w2.dtype == gradient.dtype == jnp.float32


def test_batches_are_vmapped_over():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 60, 2))
    one_by_one = [fit_location_scatter(a, estimator="mad") for a in x]
    batch = LocationScatter.from_scatter(
        np.stack([a.location for a in one_by_one]), np.stack([a.scatter for a in one_by_one]), "mad"
    )
    with jax.enable_x64(True):
        r, _ = jax.vmap(jax.vmap(LocationScatter.distance, (None, 0)))(batch, jnp.asarray(x))
        for i, centre in enumerate(one_by_one):
            np.testing.assert_allclose(r[i], jax.vmap(centre.distance)(jnp.asarray(x[i]))[0], rtol=1e-14)


def test_columns_in_very_different_units_are_factored():
    spread = np.array([1e-120, 1e120])
    correlation = np.array([[1, 0.6], [0.6, 1]])
    centre = LocationScatter.from_scatter(np.zeros(2), correlation * np.outer(spread, spread), "mcd")
    np.testing.assert_allclose(centre.factor / spread[:, None], [[1, 0], [0.6, 0.8]], rtol=1e-12)


def test_robustness_is_known_per_estimator():
    for estimator, robust in (("mcd", True), ("mad", True), ("sample", False)):
        assert LocationScatter.from_scatter(np.zeros(1), np.eye(1), estimator).is_robust is robust
    with pytest.raises(InputError, match="`estimator` must be one of"):
        LocationScatter.from_scatter(np.zeros(1), np.eye(1), "mve")
