"""Learning rates chosen on simulated data sets: an overconfident posterior is widened until its regions hold."""

import numpy as np
import pytest
from scipy import stats

import nsmbayes as nsm
from nsmbayes.diagnostics import calibration, recalibrate
from nsmbayes.diagnostics.answers import LEVELS
from nsmbayes.diagnostics.recalibration import widening


@pytest.fixture(scope="module")
def trained():
    task = nsm.tasks.get("gaussian")
    method = nsm.NSMBayesConj(task.prior, excess=None).append_simulations(*task.simulate(5_000, seed=0))
    method.train(settings=nsm.TrainingSettings(max_epochs=10), progress=False)
    return task, method, task.observe(50, seed=1).x


def test_an_overconfident_posterior_is_widened_until_its_regions_hold(trained, tmp_path):
    """Checked on 200 other data sets; a rate of 95 % is below 0.9 with a probability of 0.2 %, and of the half less."""
    task, method, x = trained
    posterior = method.build_posterior(x, beta=20.0)
    found = recalibrate(method, posterior, task, datasets=200, progress=False)
    assert found.widening > 2
    assert found.posterior.beta == pytest.approx(20 / found.widening)
    np.testing.assert_array_equal(found.posterior.x, posterior.x)

    def rates(beta):
        again = calibration(method, 200, 50, seed=77, simulator=task, beta=beta, progress=False)
        return {row.level: row.rate for row in again.coverage}

    assert rates(20.0)[0.95] < 0.8
    after = rates(found.posterior.beta)
    assert after[0.95] > 0.9
    assert after[0.5] > 0.4
    assert "simulated with the task 'gaussian'" in found.posterior.summary().replace("\n", " ")
    assert "So the learning rate was divided by" in found.describe()
    loaded = nsm.load(found.posterior.save(tmp_path / "posterior"))
    assert loaded.calibration.status == found.posterior.calibration.status


def test_a_posterior_that_is_wide_enough_stays(trained):
    task, method, x = trained
    posterior = method.build_posterior(x, beta=0.05)
    found = recalibrate(method, posterior, task, datasets=60, progress=False)
    assert found.posterior is posterior
    assert found.widening == 1
    assert "wide enough" in found.describe()


def test_contaminated_data_sets_count_too(trained):
    task, method, x = trained
    posterior = method.build_posterior(x, beta=0.5)

    def shifted(x, rng):
        return x + 1.5

    clean = recalibrate(method, posterior, task, datasets=60, progress=False)
    both = recalibrate(method, posterior, task, datasets=60, contamination=shifted, progress=False)
    assert both.widening > 1.5 * clean.widening


def test_widening_is_a_conformal_quantile():
    """Regions of a Gaussian with half the standard deviation it should have, in three dimensions."""
    squares = 4 * stats.chi2.rvs(3, size=(4001, 1), random_state=1)
    assert widening(squares / stats.chi2.ppf(LEVELS, 3)) == pytest.approx(4, rel=0.1)
    few = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [np.nan, np.nan, np.nan]])
    assert widening(few) == 2.0


def test_what_is_wrong_is_said(trained):
    task, method, x = trained
    posterior = method.build_posterior(x, beta=1.0)
    with pytest.raises(nsm.InputError, match="datasets"):
        recalibrate(method, posterior, task, datasets=10)
    with pytest.raises(nsm.InputError, match="`posterior` must be"):
        recalibrate(method, x, task)
    with pytest.raises(nsm.InputError, match="`method` must be"):
        recalibrate(None, posterior, task)
    with pytest.raises(nsm.InputError, match="`fraction`"):
        recalibrate(method, posterior, task, fraction=0.1)
    with pytest.raises(nsm.InputError, match="no learning rate"):
        recalibrate(nsm.NPE(task.prior), posterior, task)
    other = nsm.NSMBayesConj(nsm.GaussianPrior(np.zeros(3), np.eye(3)))
    with pytest.raises(nsm.InputError, match="with 3 parameters; it has 2"):
        recalibrate(other, posterior, task)
