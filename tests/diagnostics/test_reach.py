"""How far data lie from all simulations."""

import numpy as np
import pytest
from support.known_mixtures import skewed_data, skewed_prior, with_density

import nsmbayes as nsm
from nsmbayes.diagnostics import reach

SIMULATED = np.random.default_rng(0).standard_normal((5000, 2)) @ np.array([[1.0, 0.95], [0.0, 0.3]])


def test_simulations_are_inside():
    """One in a thousand is not, by definition, and few are beyond the range: 20 of 2,000 would be ten times as many."""
    fresh = np.random.default_rng(1).standard_normal((2000, 2)) @ np.array([[1.0, 0.95], [0.0, 0.3]])
    found = reach(fresh, SIMULATED)
    assert found.outside.sum() < 20
    assert reach(fresh[:5] * 0.1, SIMULATED).verdict == "inside"


def test_all_outside():
    found = reach(np.full((10, 2), 60.0), SIMULATED, ("a", "b"))
    assert found.verdict == "outside all simulations"
    assert found.beyond[0, 0] == pytest.approx(60 - SIMULATED[:, 0].max(), rel=0.1)
    assert "beyond the simulated range of" in found.explain()
    assert "check units" in found.explain()


def test_a_gap_within_the_range_of_every_column():
    """The columns are correlated: each value is usual, and the pair is not."""
    x = SIMULATED[:20].copy()
    x[3] = 2.5, -2.5
    found = reach(x, SIMULATED)
    assert (found.beyond == 0).all()
    assert found.verdict == "inside but for 1 row"
    assert np.flatnonzero(found.outside).tolist() == [3]
    assert "but not where the simulations are" in found.explain()
    assert found.as_json()["rows_outside"] == [3]


def test_few_simulations_are_an_error():
    with pytest.raises(nsm.InputError, match="at least 100"):
        reach(np.zeros((3, 2)), SIMULATED[:50])


def test_methods_check(tmp_path):
    method = with_density(nsm.NSMBayes(skewed_prior(1), calibration=None), 1)
    assert method.check(skewed_data(1, 50)).source == "simulations"
    method._simulations.clear()  # as after loading
    found = method.check(skewed_data(1, 50))
    assert (found.source, found.verdict) == ("surrogate", "inside")
    assert method.check(skewed_data(1, 50) + 500).verdict == "outside all simulations"
    with pytest.raises(nsm.InputError, match="must have 1 columns"):
        method.check(np.zeros((5, 2)))


def test_methods_without_simulations_say_so():
    task = nsm.tasks.get("gaussian")
    with pytest.raises(nsm.InputError, match="no simulations to compare with"):
        nsm.NPLMMD(task.prior, task).check(np.zeros((5, 1)))
    sets = nsm.simulate_sets(task.prior, task, m=50, n=20, seed=0)
    assert nsm.NPE(task.prior).append_simulations(*sets).check(np.ones((20, 1))).verdict == "inside"
