"""Margins of a Gaussian mixture: the other columns are integrated out in closed form."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nsmbayes.surrogates.mdn import MixtureDensity
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.surrogates.scaling import Standardiser


class MarginalMixture(MixtureDensity):
    """q(x_c | theta) for the columns c of x: a mixture with the entries c of the means and covariances of `base`.

    Noise that is added to x is also added to x_c, so a smoothed mixture has smoothed margins.
    """

    base: Any
    """The mixture of all columns."""
    columns: Int[Array, " k"]
    scale_x: Standardiser
    scale_theta: Standardiser

    @classmethod
    def of(cls, base: MixtureDensity, columns: Any) -> "MarginalMixture":
        """The margin of some columns, given by their indices."""
        c, scale = jnp.asarray(columns), base.scale_x
        part = Standardiser(scale.centre[c], scale.scale[c], asinh=False)
        return cls(base=base, columns=c, scale_x=part, scale_theta=base.scale_theta)

    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the network's coordinates, for standardised theta."""
        log_weights, means, covariances = self.base.mixture(t)
        c = self.columns
        return GaussianMixture(log_weights, means[:, c], covariances[:, c[:, None], c])
