"""NLE: neural likelihood estimation, what the robust methods are compared with."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes import _checks
from nsmbayes.methods.density import DensityMethod
from nsmbayes.posteriors.data_loss import NLELoss
from nsmbayes.posteriors.generalised import GeneralisedPosterior
from nsmbayes.weights import Constant, LocationScatter


class NLE(DensityMethod):
    """Neural likelihood estimation: the surrogate's likelihood times the prior. Outliers move it without bound.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.NLE(task.prior, hidden=(16,), warmup=50, draws=50)
        >>> method.amortised
        'partially'
    """

    name, label = "nle", "NLE"

    @classmethod
    def paper(cls, prior: Any, **options: Any) -> Self:
        """The paper's choices: a flow with 5 transforms of 50 units, z-scored x, slice sampling."""
        choices = {"surrogate": "maf", "hidden": (50,), "scaling": "zscore", "sampler": "slice", "warmup": 500}
        method = cls(prior, **(choices | options))
        method.gaussian_flow = True
        return method

    def build_posterior(self, x: Any, *, beta: float | None = None, seed: int = 0) -> GeneralisedPosterior:
        """The posterior given observations `x` of shape (n, d_x); nothing is simulated or trained.

        `beta` other than 1 raises the likelihood to a power.
        """
        x, seed = self._observations(x), _checks.integer(seed, "seed")
        power = 1.0 if beta is None else _checks.positive(beta, "beta")
        with jax.enable_x64(True):
            loss = NLELoss(self._trained(), jnp.asarray(self._dequantise(x, seed, 1)))
        trust = (Constant(), LocationScatter.from_scatter(np.zeros(x.shape[1]), np.eye(x.shape[1]), "sample"))
        return self._posterior(x, trust, *self._draw(loss, power, seed=seed))
