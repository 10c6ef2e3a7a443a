"""A network whose training was interrupted can be used, and every posterior of it says so."""

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.posteriors.caveats import wrapped


@pytest.fixture
def interrupted(interrupted_training):
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((500, 1))
    method = nsm.NSMBayesConj(nsm.GaussianPrior(np.zeros(1), np.eye(1)), noise_levels=(0.0,), hidden=4)
    method.append_simulations(theta, theta + rng.standard_normal((500, 1)))
    with interrupted_training(after=2), pytest.warns(UserWarning, match="Training was interrupted after 2"):
        return method.train(progress=False)


def test_posteriors_say_so_wherever_the_network_goes(interrupted, tmp_path):
    x = np.linspace(-2, 2, 30)[:, None]
    adopted = nsm.NSMBayesConj(interrupted.prior, noise_levels=(0.0,), hidden=4, scatter="mad").adopt(interrupted)
    loaded = nsm.load(interrupted.save(tmp_path / "model"))
    posteriors = [method.build_posterior(x, beta=0.5) for method in (interrupted, adopted, loaded)]
    for posterior in (*posteriors, nsm.load(posteriors[0].save(tmp_path / "posterior"))):
        assert posterior.warnings[0].startswith("The training of the network was interrupted")
        assert wrapped(posterior.warnings[0]) in posterior.summary()


def test_a_network_trained_again_is_as_good_as_new(interrupted):
    interrupted.train(settings=nsm.TrainingSettings(max_epochs=2), progress=False)
    assert not interrupted.build_posterior(np.linspace(-2, 2, 30)[:, None], beta=0.5).warnings
