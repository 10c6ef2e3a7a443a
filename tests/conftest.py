"""Shapes and types are checked at run time in the tests, in the modules whose inputs come from the package itself."""

import functools

from jaxtyping import install_import_hook

_CHECKED = [
    "nsmbayes.surrogates",
    "nsmbayes.losses",
    "nsmbayes.kernels",
    "nsmbayes.summaries",
    "nsmbayes.posteriors.family_loss",
    "nsmbayes.posteriors.batch",
    "nsmbayes.calibration.coverage",
    "nsmbayes.calibration.bootstrap",
    "nsmbayes.calibration.minimiser",
    "nsmbayes.weights.base",
    "nsmbayes.weights.location_scatter",
    "nsmbayes.weights.batched_mcd",
    "nsmbayes.tasks.counts",
    "nsmbayes.tasks.gaussian",
    "nsmbayes.tasks.gnk",
    "nsmbayes.tasks.gnk_exact",
    "nsmbayes.tasks.pk",
    "nsmbayes.tasks.radio",
    "nsmbayes.tasks.sir",
]

with install_import_hook(_CHECKED, "beartype.beartype"):
    import nsmbayes as nsm

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from helpers import random_family  # noqa: E402

from nsmbayes.methods import density  # noqa: E402
from nsmbayes.samplers import Draws  # noqa: E402


@pytest.fixture
def x64():
    """Double precision for the duration of a test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def trained_gnk():
    """A method trained briefly on g-and-k simulations: enough to be used, not to be good."""
    task = nsm.tasks.get("gnk")
    method = nsm.NSMBayesConj(task.prior, parameter_names=task.parameter_names)
    settings = nsm.TrainingSettings(max_epochs=3)
    return method.append_simulations(*task.simulate(20_000, seed=0)).train(0, settings=settings, progress=False)


@pytest.fixture
def random_method():
    """Untrained but usable methods of any size, with networks drawn at random."""

    def make(d_x: int, d_theta: int, *, seed: int = 0, scaling: str = "robust", levels=(0.0,), **options):
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((d_theta, d_theta))
        prior = nsm.GaussianPrior(rng.standard_normal(d_theta), root @ root.T + np.eye(d_theta))
        method = nsm.NSMBayesConj(prior, scaling=scaling, hidden=16, levels=levels, **options)
        asinh, noisy = scaling == "robust-asinh", levels != (0.0,)
        method.family = random_family(d_x, d_theta, seed=seed, asinh=asinh, noisy=noisy)
        return method

    return make


def _sample(log_prior, loss, prior_draws, data, *, beta, chains, draws, key):
    """Stands in for the sampler, which takes long to compile: draws around some from the prior."""
    start = prior_draws[:chains, None]
    noise = np.random.default_rng(0).standard_normal((chains, draws, start.shape[-1]))
    one = np.ones(start.shape[-1])
    zero = np.zeros(chains, int)
    return Draws(start + 0.1 * noise, zero + 0.8, zero, r_hat=one, ess=1000 * one)


@pytest.fixture(scope="module")
def small_methods():
    """Methods that train and sample next to nothing: here it matters what is written."""
    with pytest.MonkeyPatch.context() as patch:
        brief = nsm.TrainingSettings(max_epochs=2)
        for method in (nsm.NSMBayes, nsm.NLE, nsm.NSMBayesConj):
            patch.setattr(method, "train", functools.partialmethod(method.train, settings=brief))
        patch.setattr(density, "sample_independence", _sample)
        yield
