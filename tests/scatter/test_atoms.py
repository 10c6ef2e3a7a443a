"""Scales of columns in which one value is the majority."""

import numpy as np
import pytest

from nsmbayes.scatter import beside_atoms, fit_location_scatter

RNG = np.random.default_rng(0)


def counts(zeros, n=300):
    values = RNG.negative_binomial(2, 2 / 42, (n, 1)).astype(float)
    values[: int(zeros * n)] = 0
    return values + RNG.uniform(-0.5, 0.5, (n, 1))


@pytest.mark.parametrize("zeros", [0.55, 0.7, 0.9])
def test_zeros_do_not_shrink_the_scale(zeros):
    """The scale of the others is 20 to 100; that of the zeros alone is below one."""
    x = counts(zeros)
    centre = fit_location_scatter(x)
    assert centre.scatter[0, 0] < 10
    wide, columns = beside_atoms(x, (1.0,), centre)
    assert columns == [0]
    assert 20 < np.sqrt(wide.scatter[0, 0]) < 100
    assert wide.location == centre.location
    assert wide.estimator == "mcd"


def test_outliers_among_the_others_do_not_stretch_it():
    x = counts(0.7)
    before = beside_atoms(x, (1.0,), fit_location_scatter(x))[0].scatter[0, 0]
    x[-30:] = 1e6
    after = beside_atoms(x, (1.0,), fit_location_scatter(x))[0].scatter[0, 0]
    assert after < 9 * before


@pytest.mark.parametrize("steps", [(1.0,), (0.0,)])
def test_without_a_majority_or_a_grid_nothing_changes(steps):
    x = counts(0.3 if steps[0] else 0.9)
    centre = fit_location_scatter(x)
    same, columns = beside_atoms(x, steps, centre)
    assert same is centre
    assert columns == []


def test_other_columns_keep_their_scale_and_correlation():
    x = np.concatenate([counts(0.8), RNG.standard_normal((300, 1))], axis=1)
    centre = fit_location_scatter(x)
    wide, columns = beside_atoms(x, (1.0, 0.0), centre)
    assert columns == [0]
    assert wide.scatter[1, 1] == centre.scatter[1, 1]

    def correlation(S):
        return S[0, 1] / np.sqrt(S[0, 0] * S[1, 1])

    assert correlation(wide.scatter) == pytest.approx(correlation(centre.scatter))
