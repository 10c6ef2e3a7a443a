"""What every weight must do; one table of weights drives the tests."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from nsmbayes.errors import InputError
from nsmbayes.serialisation import REGISTRY, decode, encode
from nsmbayes.weights import IMQ, Constant, PlateauIMQ, SquaredExponential, Weight

EXAMPLES = [
    IMQ(),
    IMQ(zeta=0.3),
    IMQ(zeta=2.0),
    PlateauIMQ(),
    PlateauIMQ(radius=1.0, zeta=2.0),
    PlateauIMQ(radius=2.2, zeta=1.0, cutoff_radius=6.0),
    PlateauIMQ(radius=2.2, zeta=1.0, columns=3),
    SquaredExponential(),
    SquaredExponential(lengthscale=0.1),
    Constant(),
]
every_weight = pytest.mark.parametrize("weight", EXAMPLES, ids=str)
REGULAR = np.concatenate([np.linspace(0, 6, 400), np.logspace(-8, 3, 400)])


def test_every_registered_weight_is_among_the_examples():
    assert {type(weight) for weight in EXAMPLES} == {kind for kind in REGISTRY.values() if issubclass(kind, Weight)}


@every_weight
def test_slope_is_the_derivative(weight, x64):
    r = jnp.asarray(REGULAR)
    w2, slope = jax.vmap(weight.squared)(r)
    automatic = jax.vmap(jax.grad(lambda r: weight.squared(r)[0]))(r)
    np.testing.assert_allclose(slope, automatic, rtol=1e-12, atol=1e-300)
    step = 1e-6 * np.maximum(1, REGULAR)
    ahead, behind = (jax.vmap(weight.squared)(jnp.abs(r + s))[0] for s in (step, -step))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), atol=1e-7)
    assert w2.dtype == slope.dtype == jnp.float64


@every_weight
def test_falls_from_one_and_stays_positive_where_it_can(weight, x64):
    w2, slope = jax.vmap(weight.squared)(jnp.sort(jnp.asarray(REGULAR)))
    assert w2[0] == 1
    assert slope[0] == 0
    assert ((w2 >= 0) & (w2 <= 1)).all()
    assert (jnp.diff(w2) <= 1e-15).all()
    assert (slope <= 0).all()


ABSURD = [IMQ(zeta=5e-324), IMQ(zeta=1e300), PlateauIMQ(1e-300, 1e-40), SquaredExponential(5e-324)]


@pytest.mark.parametrize("weight", EXAMPLES + ABSURD, ids=str)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_finite_everywhere(weight, dtype, x64):
    info = jnp.finfo(dtype)
    powers = np.arange(-323, 309) if dtype == jnp.float64 else np.arange(-45, 39)
    r = np.concatenate([[0, info.tiny, info.max, np.inf], [float(f"1e{p}") for p in powers]])
    w2, slope = jax.vmap(weight.squared)(jnp.asarray(r, dtype))
    assert w2.dtype == slope.dtype == dtype
    assert np.isfinite(w2).all()
    assert np.isfinite(slope).all()
    assert ((w2 >= 0) & (w2 <= 1)).all()
    if weight.decays:
        assert w2[3] == 0
        assert slope[3] == 0


@every_weight
def test_single_precision_agrees_with_double(weight, x64):
    exact = jax.vmap(weight.squared)(jnp.asarray(REGULAR, jnp.float32).astype(jnp.float64))
    rounded = jax.vmap(weight.squared)(jnp.asarray(REGULAR, jnp.float32))
    for a, b in zip(exact, rounded, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(a).max())


@every_weight
def test_decay_is_the_power_at_infinity(weight, x64):
    if not np.isfinite(weight.decay):
        return
    r = jnp.asarray([1e12, 1e13])
    w2 = jax.vmap(weight.squared)(r)[0]
    np.testing.assert_allclose(0.5 * jnp.log10(w2[0] / w2[1]), weight.decay, rtol=1e-9, atol=1e-9)
    assert weight.bounded
    assert weight.decays == (weight.decay > 0)


@every_weight
def test_config_round_trip(weight):
    rebuilt = decode(json.loads(json.dumps(encode(weight))))
    assert rebuilt == weight
    assert hash(rebuilt) == hash(weight)
    assert sum(rebuilt == other for other in EXAMPLES) == 1


@every_weight
def test_can_be_jitted_as_an_argument(weight):
    w2, slope = jax.jit(lambda weight, r: weight.squared(r))(weight, jnp.asarray(3.0))
    np.testing.assert_allclose([w2, slope], weight.squared(jnp.asarray(3.0)), rtol=1e-6)


@pytest.mark.parametrize("zeta", [0.5, 1.0, 2.0])
def test_imq_is_the_papers(zeta, x64):
    r = REGULAR
    w2, _ = jax.vmap(IMQ(zeta=zeta).squared)(jnp.asarray(r))
    np.testing.assert_allclose(w2, ((1 + r**2) ** (-1 / zeta)) ** 2, rtol=1e-13)


def test_imq_far_away_has_all_its_digits(x64):
    w2, slope = IMQ(zeta=2.0).squared(jnp.asarray(1e140))
    np.testing.assert_allclose([w2, slope], [1e-280, -2e-420], rtol=1e-12)
    np.testing.assert_allclose(IMQ(zeta=2.0).squared(jnp.asarray(1e80))[1], -2e-240, rtol=1e-12)


def test_squared_exponential_formula(x64):
    w2, _ = jax.vmap(SquaredExponential(lengthscale=3.0).squared)(jnp.asarray(REGULAR))
    np.testing.assert_allclose(w2, np.exp(-(REGULAR**2) / (2 * 3.0**2)) ** 2, rtol=1e-12)


def test_plateau_is_flat_inside_and_c1_at_its_edge(x64):
    weight = PlateauIMQ(radius=2.5, zeta=1.0)
    w2, slope = jax.vmap(weight.squared)(jnp.linspace(0, 2.5, 50))
    assert (w2 == 1).all()
    assert (slope == 0).all()
    errors = []
    for step in (1e-2, 1e-3, 1e-4):
        below, edge, above = (float(weight.squared(jnp.asarray(2.5 + s))[0]) for s in (-step, 0.0, step))
        assert (edge - below) / step == 0
        errors.append(abs(above - edge) / step)
        assert abs(weight.squared(jnp.asarray(2.5 + step))[1]) < 5 * step
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 10, rtol=1e-2)


def test_plateau_falls_like_imq_beyond_its_edge(x64):
    np.testing.assert_allclose(
        PlateauIMQ(radius=2.5, zeta=2.0).squared(jnp.asarray(4.5)), IMQ(zeta=2.0).squared(jnp.asarray(2.0))
    )


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), "one", None, True])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda v: IMQ(zeta=v), "zeta"),
        (lambda v: PlateauIMQ(zeta=v), "zeta"),
        (lambda v: PlateauIMQ(radius=v), "radius"),
        (lambda v: SquaredExponential(lengthscale=v), "lengthscale"),
        (lambda v: decode({"kind": "imq", "zeta": v}), "zeta"),
    ],
)
def test_bad_arguments_are_named(make, name, bad):
    with pytest.raises(InputError, match=f"`{name}`"):
        make(bad)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "tricube"}, "There is no kind 'tricube'; there are: .*imq"),
        ({"kind": ["imq"]}, "There is no kind"),
        ({"zeta": 1.0}, "There is no kind None"),
        ({"kind": "imq", "gamma": 1.0}, "no field 'gamma'; its fields are zeta"),
        ({"kind": "constant", "zeta": 1.0}, "no field 'zeta'; it has no fields"),
    ],
)
def test_bad_configs_are_explained(config, message):
    with pytest.raises(InputError, match=message):
        decode(config)


def test_only_a_cutoff_radius_takes_weight_from_an_observation_at_all_levels(x64):
    r = jnp.asarray(REGULAR)
    for weight in EXAMPLES:
        overall = jax.vmap(weight.overall)(r)
        if weight != PlateauIMQ(radius=2.2, zeta=1.0, cutoff_radius=6.0):
            assert (overall == 1).all()
    overall = PlateauIMQ(2.0, 1.0, cutoff_radius=6.0).overall(jnp.array([0.0, 6.0, 7.0, 9.0]))
    np.testing.assert_allclose(overall, [1, 1, 0.25, 0.01])
    assert overall.dtype == jnp.float64
    assert PlateauIMQ(2.0, 1.0, cutoff_radius=6.0).overall(jnp.array(np.inf)) == 0
    with pytest.raises(InputError, match="`cutoff_radius`"):
        PlateauIMQ(cutoff_radius=-1.0)


@pytest.mark.parametrize("d", [2, 5, 30])
def test_a_plateau_for_more_columns_holds_the_same_share_of_gaussian_data(d):
    weight = PlateauIMQ(radius=2.0, zeta=0.7, cutoff_radius=12.0, columns=1)
    other = weight.for_columns(d)
    np.testing.assert_allclose(chi2(d).sf(other.radius**2), chi2(1).sf(4.0), rtol=1e-9)
    np.testing.assert_allclose(other.cutoff_radius - other.radius, 10)
    assert (other.zeta, other.columns) == (0.7, d)
    np.testing.assert_allclose(other.for_columns(1).radius, 2.0, rtol=1e-9)
    share = (np.linalg.norm(np.random.default_rng(0).standard_normal((20_000, d)), axis=1) < other.radius).mean()
    np.testing.assert_allclose(share, 0.9545, atol=0.008)  # five standard errors


def test_a_weight_for_as_many_columns_as_it_is_meant_for_is_itself():
    weight = PlateauIMQ(radius=2.0, cutoff_radius=12.0, columns=1)
    assert weight.for_columns(1) is weight
    assert PlateauIMQ(radius=2.0, columns=1).for_columns(3).cutoff_radius is None


@every_weight
def test_weights_that_were_not_told_of_columns_stay_as_they_are(weight):
    if getattr(weight, "columns", None) is None:
        assert weight.for_columns(8) is weight
    else:
        assert weight.for_columns(8) != weight


@pytest.mark.parametrize("radius", [1e-9, 20.0, 1e6])
def test_a_plateau_of_any_size_grows_with_the_columns(radius):
    """Beyond a radius of about 38 no share is left in double precision."""
    radii = [PlateauIMQ(radius=radius, columns=1).for_columns(d).radius for d in (1, 2, 8)]
    assert np.isfinite(radii).all()
    assert radii[0] < radii[1] < radii[2] < radius + 5


def test_bad_numbers_of_columns_are_refused():
    for bad in (0, 1.5, "three"):
        with pytest.raises(InputError, match="`columns`"):
            PlateauIMQ(columns=bad)
