"""NLE: neural likelihood estimation, the non-robust baseline."""

from typing import Any, Self

import numpy as np

from nsmbayes._internal import checks
from nsmbayes._internal.waiting import waiting
from nsmbayes.calibration import SampledProblem
from nsmbayes.losses import NLESetting
from nsmbayes.losses.missing import MarginalSetting
from nsmbayes.methods.likelihood import LikelihoodMethod
from nsmbayes.methods.missing import as_mixture
from nsmbayes.posteriors import GeneralisedPosterior
from nsmbayes.surrogates import MAF

PAPER_FLOW = MAF(hidden=50, squash=False, allow_one_dimension=True)
"""The paper's flow: 5 transforms of 50 units."""


class NLE(LikelihoodMethod):
    """Neural likelihood estimation: the surrogate's likelihood times the prior. Outliers can move it without bound.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.NLE(task.prior, surrogate=nsm.MDN(hidden=(16,)), draws=50)
        >>> method.amortised
        'partially'
    """

    name, label = "nle", "NLE"

    @classmethod
    def paper(cls, prior: Any, **options: Any) -> Self:
        """The paper's settings: a flow with 5 transforms of 50 units, z-scored x, slice sampling."""
        choices = {"surrogate": PAPER_FLOW, "scaling": "zscore", "sampler": "slice", "warmup": 500}
        return cls(prior, **(choices | options))

    def build_posterior(
        self,
        x: Any,
        *,
        beta: float | None = None,
        missing: str | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> GeneralisedPosterior:
        """Build the posterior given observations `x` of shape (n, d_x), without further simulation or training.

        The likelihood is raised to the power `beta`, by default 1. With missing="marginalise", NaN cells of `x` are
        integrated out exactly; the surrogate must be a mixture. With `progress`, a step that takes longer than two
        seconds is printed on a terminal.
        """
        x, seed = self._observations(x, missing), checks.integer(seed, "seed")
        power = 1.0 if beta is None else checks.positive(beta, "beta")
        dequantised, setting = self._dequantise(x, seed, 1), NLESetting.of(self.density, x.shape[1])
        if np.isnan(x).any():
            setting = MarginalSetting.of_nle(as_mixture(self.density))
        problem = SampledProblem(self.support, setting.loss(dequantised), len(x), self.sampler)
        with waiting("posterior", progress=progress):
            return self._posterior(x, dequantised, setting, problem, beta=power, calibration=None, seed=seed)
