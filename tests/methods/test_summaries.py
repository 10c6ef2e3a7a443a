import numpy as np

from nsmbayes.methods.baselines.summaries import quantile_summaries
from nsmbayes.tasks.gnk import GNK


def test_location_and_scale_move_what_they_should():
    x = np.random.default_rng(0).standard_normal((3, 200, 2))
    s, moved = quantile_summaries(x), quantile_summaries(5 + 2 * x)
    assert s.shape == (3, 8)
    median, spread, skewness, tails = np.split(s, 4, axis=1)
    assert np.allclose(moved, np.hstack([5 + 2 * median, 2 * spread, skewness, tails]))
    assert np.allclose(quantile_summaries(-x), np.hstack([-median, spread, -skewness, tails]))


def test_one_set_is_a_set_of_its_own():
    x = np.random.default_rng(0).standard_normal((3, 50, 1))
    assert np.allclose(quantile_summaries(x[1]), quantile_summaries(x)[1])


def test_outliers_shift_the_skewness_of_the_papers_data():
    """Why RSNLE fails there: the third statistic changes its sign, but stays where simulations lie."""
    observed = GNK.observe(100, seed=1)
    assert quantile_summaries(observed.clean)[2] > 0 > quantile_summaries(observed.x)[2]
