import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes import InputError
from nsmbayes.surrogates import fit_standardiser


def heavy(m=4000):
    rng = np.random.default_rng(0)
    return np.column_stack([rng.standard_cauchy(m) * 3 + 7, rng.standard_normal(m) * 1e-3 + 1e3])


def test_robust_uses_median_and_mad():
    x = heavy()
    z = fit_standardiser(x, "robust", "x").standardise(x)
    np.testing.assert_allclose(np.median(z, axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.median(np.abs(z), axis=0), 0.6744897501960817, rtol=1e-9)


def test_zscore_is_the_mean_and_standard_deviation():
    x = np.random.default_rng(1).exponential(size=(1000, 2))
    z = fit_standardiser(x, "zscore", "x").standardise(x)
    np.testing.assert_allclose([z.mean(0), z.std(0)], [[0, 0], [1, 1]], atol=1e-12)


def test_asinh_tames_tails_that_a_linear_map_leaves():
    x = heavy()
    tails = {
        kind: np.abs(fit_standardiser(x, kind, "x").standardise(x)[:, 0]).max() for kind in ("robust", "robust-asinh")
    }
    assert tails["robust"] > 100
    assert tails["robust-asinh"] < 15


@pytest.mark.parametrize("kind", ["robust", "robust-asinh", "zscore", "none"])
def test_slopes_equal_autodiff(x64, kind):
    scaler = fit_standardiser(heavy(), kind, "x")
    for x in jnp.asarray(heavy(50)[::5]):
        first, second = scaler.slopes(x)
        by_column = [jax.grad(lambda v, j=j, x=x: scaler(x.at[j].set(v))[j]) for j in range(2)]
        np.testing.assert_allclose(first, [g(x[j]) for j, g in enumerate(by_column)], rtol=1e-10)
        np.testing.assert_allclose(second, [jax.grad(g)(x[j]) for j, g in enumerate(by_column)], rtol=1e-8, atol=1e-12)
        log_slope = [jax.grad(lambda v, g=g: jnp.log(g(v))) for g in by_column]
        jacobian = scaler.log_jacobian_slopes(x)
        np.testing.assert_allclose(jacobian[0], [g(x[j]) for j, g in enumerate(log_slope)], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(
            jacobian[1], [jax.grad(g)(x[j]) for j, g in enumerate(log_slope)], rtol=1e-7, atol=1e-9
        )


def test_a_column_mostly_tied_uses_its_standard_deviation():
    x = np.zeros((100, 1))
    x[:20] = np.arange(1, 21)[:, None]
    assert float(fit_standardiser(x, "robust", "x").scale[0]) == pytest.approx(x.std())


def test_constant_columns_are_named():
    with pytest.raises(InputError, match=r"`x` has constant columns \(1\)"):
        fit_standardiser(np.column_stack([np.arange(5.0), np.full(5, 3.0)]), "robust", "x")


def test_unknown_kind():
    with pytest.raises(InputError, match="`scaling` must be one of"):
        fit_standardiser(heavy(), "minmax", "x")
