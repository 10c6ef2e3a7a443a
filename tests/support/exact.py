"""theta ~ N(0, 2^2 I), x ~ N(theta, I): a method with the exact posterior, and the same with a defect planted."""

import jax
import numpy as np

import nsmbayes as nsm
from nsmbayes.methods import Method
from nsmbayes.posteriors import ConjugateBatch, SampledPosterior
from nsmbayes.priors import unconstrained

PRIOR = nsm.GaussianPrior(np.zeros(2), np.full(2, 4.0))
SIMULATOR = nsm.JaxSimulator(lambda key, theta: theta + jax.random.normal(key, (2,)))
DEFECTS = ("wrong sign", "half width", "shifted")


def exact_moments(x):
    """Mean and covariance of the posterior of data sets (..., n, 2)."""
    precision = x.shape[-2] + 1 / 4
    return x.sum(axis=-2) / precision, np.eye(2) / precision


class Exact(Method):
    """The exact posterior by draws; those of many data sets in closed form. `defect` is one of DEFECTS, or "prior"."""

    name, label, amortised = "exact", "Exact", "fully"

    def __init__(self, defect=None, draws=400):
        super().__init__(PRIOR, 2, ("a", "b"))
        self.defect, self.draws = defect, draws

    def train(self, seed=0, *, progress=True):
        return self

    def moments(self, x):
        mean, covariance = exact_moments(np.asarray(x))
        if self.defect == "wrong sign":
            mean = -mean
        elif self.defect == "half width":
            covariance = covariance / 4
        elif self.defect == "shifted":
            mean = mean + 0.5 * np.sqrt(np.diag(covariance))
        elif self.defect == "prior":
            mean, covariance = 0 * mean, PRIOR.covariance
        return mean, covariance

    def build_posterior(self, x, *, seed=0):
        mean, covariance = self.moments(x)
        rng = np.random.default_rng([seed, 5])
        draws = mean + rng.standard_normal((1, self.draws, 2)) @ np.linalg.cholesky(covariance).T
        return SampledPosterior(self._provenance(), unconstrained(PRIOR), draws, np.asarray(x))

    def build_posteriors(self, x, *, beta=1.0, seed=0):
        mean, covariance = self.moments(x)
        return ConjugateBatch(mean, np.broadcast_to(covariance, (len(mean), 2, 2)), np.full(len(mean), beta))
