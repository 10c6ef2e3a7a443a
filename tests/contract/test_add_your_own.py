"""A toy of each kind of thing, added from outside by public means only: no file of the package knows them."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.calibration import Calibration, CalibrationResult, CalibrationStatus, SampledProblem
from nsmbayes.methods import METHODS, TrainedMethod
from nsmbayes.posteriors import SampledPosterior
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import Sampler, sample_slice
from nsmbayes.samplers import log_prob as target_log_prob
from nsmbayes.serialisation import REGISTRY, registered
from nsmbayes.surrogates import MixtureDensity, Standardiser, SurrogateConfig
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.tasks import Contamination, Task, all_at_once

PRIOR = nsm.GaussianPrior([0.0, 0.0], [1.0, 0.25])
BRIEF = nsm.TrainingSettings(max_epochs=2)

pytestmark = pytest.mark.filterwarnings("ignore:.* lie outside the range of the simulations")


@pytest.fixture(autouse=True)
def _registries_are_left_as_they_were():
    kept = dict(REGISTRY), dict(METHODS), dict(nsm.tasks.TASKS)
    yield
    for registry, before in zip((REGISTRY, METHODS, nsm.tasks.TASKS), kept, strict=True):
        registry.clear()
        registry.update(before)


def simulate_one(key, theta):
    return theta[:1] + jnp.exp(theta[1]) * jax.random.normal(key, (1,))


def add_ten(clean, keys, *, fraction, rng):
    is_outlier = rng.random(len(clean)) < fraction
    return clean + 10.0 * is_outlier[:, None], is_outlier


TASK = Task(
    name="toy",
    prior=PRIOR,
    theta_true=np.array([0.5, 0.0]),
    parameter_names=("mean", "log sd"),
    x_names=("x",),
    simulate_many=all_at_once(simulate_one),
    contaminations={"ten": Contamination(add_ten, fraction=0.1)},
)


class Triangle(nsm.weights.Weight):
    """w² = max(1 - r / 8, 0)²: falls to zero in a straight line."""

    kind: ClassVar[str] = "triangle"

    def squared(self, r):
        left = jnp.maximum(1 - r / 8, 0)
        return left**2, -left / 4

    @property
    def decay(self):
        return float("inf")


class OneGaussian(MixtureDensity):
    """N(a' t + b, exp(c)^2), whose three numbers are trained."""

    a: jax.Array
    b: jax.Array
    c: jax.Array
    scale_x: Standardiser
    scale_theta: Standardiser

    def mixture(self, t):
        mean = (self.a @ t + self.b)[None, None]
        return GaussianMixture(jnp.zeros(1, mean.dtype), mean, jnp.exp(2 * self.c)[None, None, None])


@dataclass(frozen=True)
class OneGaussianConfig(SurrogateConfig):
    """Nothing to choose."""

    kind: ClassVar[str] = "one-gaussian"

    def build(self, key, scalers, *, noise=None):
        zero = jnp.zeros(())
        return OneGaussian(jax.random.normal(key, (len(scalers.theta.scale),)), zero, zero, *scalers)


@dataclass(frozen=True)
class HalfCalibration(Calibration[SampledProblem]):
    """Whatever the data: one half."""

    kind: ClassVar[str] = "half"
    problem: ClassVar[type] = SampledProblem

    def calibrate(self, problem, *, seed):
        beta = np.array([0.5])
        return CalibrationResult(0.5, beta, beta, 0.95, None, CalibrationStatus.STEPS, "one half", bootstraps=0)


@dataclass(frozen=True, kw_only=True)
class SlowStart(Sampler):
    """Slice sampling from the middle of the prior."""

    kind: ClassVar[str] = "slow-start"

    def sample(self, target, *, seed):
        start = np.zeros((self.chains, target.prior.dim))
        options = {"warmup": self.warmup, "draws": self.draws, "key": jax.random.key(seed)}
        return sample_slice(target_log_prob, start, target, **options)


class NearestSimulations(TrainedMethod):
    """The parameters whose simulation is among the nearest to the mean of the data: rejection ABC."""

    name, label, amortised = "nearest", "Nearest simulations", "fully"

    def __init__(self, prior, *, keep=50, parameter_names=None):
        self.support, self.keep = unconstrained(prior), keep
        super().__init__(prior, self.support.dim, parameter_names)

    def train(self, seed=0, *, progress=True):
        self.theta, self.x = self._all_simulations()
        return self

    def build_posterior(self, x, *, seed=0):
        nearest = np.abs(self.x - x.mean(axis=0)).sum(axis=1).argsort()[: self.keep]
        return SampledPosterior(self._provenance(), self.support, self.theta[nearest][None], x)


def simulated(m=400):
    return TASK.simulate(m, seed=0, progress=False)


def test_a_task():
    nsm.tasks.register(TASK)
    assert nsm.tasks.get("toy") is TASK
    observed = nsm.tasks.get("toy").observe(50, seed=1)
    assert 0 < observed.is_outlier.sum() < 50
    with pytest.raises(nsm.InputError, match="there is a task 'gnk' already"):
        nsm.tasks.register(nsm.tasks.get("gnk"))


def test_a_weight(tmp_path):
    registered(Triangle)
    method = nsm.NSMBayesConj(PRIOR, weight=Triangle(), hidden=8, excess=None).append_simulations(*simulated())
    method.train(settings=BRIEF, progress=False)
    observed = TASK.observe(50, seed=1)
    posterior = method.build_posterior(observed.x, beta=0.5)
    assert posterior.weights[observed.is_outlier].max() < 0.2 < posterior.weights[~observed.is_outlier].max()
    assert not posterior.certificate.robust  # nothing is known about it, and nothing is assumed
    assert "Triangle" in posterior.certificate.verdict
    assert nsm.load(method.save(tmp_path / "model")).weight == Triangle()


def test_a_surrogate_a_calibration_and_a_sampler(tmp_path):
    for cls in (OneGaussianConfig, HalfCalibration, SlowStart):
        registered(cls)
    options = {"calibration": HalfCalibration(), "sampler": SlowStart(chains=2, draws=400)}
    method = nsm.NSMBayes(PRIOR, surrogate=OneGaussianConfig(), **options)
    method.append_simulations(*simulated()).train(settings=BRIEF, progress=False)
    loaded = nsm.load(method.save(tmp_path / "model"))
    assert loaded.config() == method.config()
    x = TASK.observe(50, seed=1).x
    one, two = (each.build_posterior(x, seed=0) for each in (method, loaded))
    assert one.calibration.beta == 0.5
    assert one.calibration.method == "one half"
    assert one.draws.shape == (2, 400, 2)
    assert np.array_equal(one.draws, two.draws)


def test_a_method():
    METHODS[NearestSimulations.name] = NearestSimulations
    method = METHODS["nearest"](PRIOR).append_simulations(*simulated()).train()
    posterior = method.build_posterior(TASK.observe(50, seed=1).x)
    assert posterior.sample((5,), seed=0).shape == (5, 2)
    assert "Nearest simulations posterior from 50 observations" in posterior.summary()
    assert "no theorem is known" in posterior.certificate.verdict
    assert len(posterior.outliers()) == 15
    assert posterior.to_arviz().posterior["theta_1"].shape == (1, 50)
