"""Trial runs that train and sample next to nothing, for tests in which it matters what is written."""

from dataclasses import dataclass

import numpy as np

from nsmbayes import TrainingSettings
from nsmbayes.experiments import Effort
from nsmbayes.samplers import Draws, Sampler
from nsmbayes.serialisation import registered


@registered
@dataclass(frozen=True, kw_only=True)
class PriorSampler(Sampler):
    """Draws around a few from the prior, in place of a sampler that takes long to compile. They claim to be good."""

    kind = "around-prior-draws"

    def sample(self, target, *, seed):
        start, _ = self._prior_draws(target, seed)
        start = start[: self.chains, None]
        noise = np.random.default_rng(0).standard_normal((self.chains, self.draws, start.shape[-1]))
        one, zero = np.ones(start.shape[-1]), np.zeros(self.chains, int)
        return Draws(start + 0.1 * noise, zero + 0.8, zero, r_hat=one, ess_bulk=1000 * one, ess_tail=1000 * one)


def prior_draws(task, clean_x, *, draws, seed):
    """Stands in for the exact posterior, which takes seconds to compile."""
    assert clean_x.shape[1] == len(task.x_names)
    return task.prior.sample((draws,), seed)


def little_effort(*, max_epochs=2, oracle=prior_draws):
    """Two epochs of training, and draws of the prior."""
    return Effort(training=TrainingSettings(max_epochs=max_epochs), sampler=PriorSampler(), oracle=oracle)
