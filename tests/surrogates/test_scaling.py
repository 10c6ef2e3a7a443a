import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes.errors import InputError
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

    def by_autodiff(x, j):
        slope = jax.grad(lambda v: scaler(x.at[j].set(v))[j])
        log_slope = jax.grad(lambda v: jnp.log(slope(v)))
        return [f(x[j]) for f in (slope, jax.grad(slope), log_slope, jax.grad(log_slope))]

    @jax.jit
    @jax.vmap
    def both(x):
        ours = (*scaler.slopes(x), *scaler.log_jacobian_slopes(x))
        return ours, jnp.stack([jnp.stack(by_autodiff(x, j)) for j in range(2)], axis=1)

    ours, autodiff = both(jnp.asarray(heavy(50)[::5]))
    tolerances = ((1e-10, 0.0), (1e-8, 1e-12), (1e-8, 1e-9), (1e-7, 1e-9))
    for k, (rtol, atol) in enumerate(tolerances):
        np.testing.assert_allclose(ours[k], autodiff[:, k], rtol=rtol, atol=atol)


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
