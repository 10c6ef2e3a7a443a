"""Sampled posteriors of a loss, with results that need the loss: influence, modes, sensitivity."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration import UNCHECKED, CalibrationResult, SurrogateCheck
from nsmbayes.losses import Loss, NSMLoss
from nsmbayes.losses.cells import CountedLoss
from nsmbayes.losses.corrected import uncorrected
from nsmbayes.losses.evaluated import LossSetting
from nsmbayes.losses.missing import MarginalLoss
from nsmbayes.posteriors.alternatives import COMPRESSED, of_target
from nsmbayes.posteriors.base import Posterior, Provenance
from nsmbayes.posteriors.influence import Influence, influence_by_reweighting
from nsmbayes.posteriors.sampled import SampledPosterior
from nsmbayes.posteriors.sensitivity import Variations
from nsmbayes.priors import (
    UnconstrainedPrior,
    constrain_rows,
    unconstrain_rows,
)
from nsmbayes.samplers import (
    Compression,
    Draws,
    Target,
    each_loss,
    energy,
    log_density,
    minimise,
    total_loss,
)
from nsmbayes.surrogates import Density
from nsmbayes.suspects import BY_DISTANCE, Suspects
from nsmbayes.weights import Weighting

_INFLUENCE_DRAWS = 500
_ERROR_DRAWS = 64
_VARIED_DRAWS = 1000  # draws that are reweighted
_ROW_LOSSES, _FEWEST = 20_000_000, 50  # for the influence: maximum number of losses, and minimum number of draws
_FINER = 16  # number of noise rules in the finer rule that measures the error of one


class Modes(NamedTuple):
    """Local maxima of a posterior density."""

    theta: Float[np.ndarray, "k d"]
    """Parameters of the modes."""
    height: Float[np.ndarray, " k"]
    """Log density relative to the highest mode, in the unconstrained space."""
    fraction: Float[np.ndarray, " k"]
    """The fraction of the draws that are nearest to each mode."""


class GeneralisedPosterior(SampledPosterior):
    """Draws from a generalised posterior exp(-beta sum_i loss_i(theta)) prior(theta), with its loss.

    Built by the `build_posterior` of NLE and NSM-Bayes. With very many observations, `target` has the loss of a
    weighted subset of them, or for one column of cells in which they are counted. `compression` is that subset, with
    its error relative to the full loss, or those cells. Otherwise it is None.
    """

    result: Draws

    def __init__(
        self,
        provenance: Provenance,
        target: Target,
        result: Draws,
        x: Float[np.ndarray, "n d_x"],
        setting: LossSetting,
        *,
        dequantised: Float[np.ndarray, "n d_x"] | None = None,
        calibration: CalibrationResult | None = None,
        compression: Compression | CountedLoss | None = None,
        suspects: Suspects | None = None,
        by_distance: bool = False,
        surrogate_check: SurrogateCheck | None = None,
    ):
        said = [result.note, *(each.describe() for each in (suspects, compression) if each is not None)]
        said += [BY_DISTANCE] if by_distance else []
        said += [UNCHECKED] if surrogate_check is None else []
        if cells := int(np.isnan(x).sum()):
            said.append(f"{cells:,} of {x.size:,} cells were not observed, and are integrated out.")
        result = result._replace(note="\n".join(filter(None, said)))
        super().__init__(
            provenance,
            target.prior,
            constrain_rows(target.prior, result.positions),
            x,
            beta=float(target.beta),
            result=result,
            calibration=calibration,
            surrogate_check=surrogate_check,
        )
        self.target, self.setting, self.compression, self.suspects = target, setting, compression, suspects
        self.dequantised = x if dequantised is None else dequantised
        """The observations in the loss: with noise of one grid step if the method has `grid_steps`."""

    @property
    def density(self) -> Density | None:
        """The surrogate q(x | theta) if it is a density, otherwise None."""
        return self.setting.surrogate if isinstance(self.setting.surrogate, Density) else None

    @property
    def weighting(self) -> Weighting:
        """The weighting of observations by their distance."""
        return self.setting.weighting

    @property
    def noisy_x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations in the loss; the same as `dequantised`."""
        return self.dequantised

    def losses_at(self, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k n"]:
        """The loss of each observation at many parameters."""
        return self.row_losses(unconstrain_rows(self.target.prior, theta), np.arange(self.n))

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The weight of each observation, from 0 (ignored) to 1: weight by distance times excess factor."""
        by_distance = self.weight_at(self.x)
        return by_distance if self.suspects is None else by_distance * self.suspects.factor.values

    def weight_at(self, x: Any) -> Float[np.ndarray, " k"]:
        """The weight by distance that observations with other values would have."""
        return self.setting.weighting.at(self.points(x))

    @property
    def location_scatter(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]]:
        """The location and scatter that define the distances in the weight."""
        centre = self.setting.weighting.centre
        return np.asarray(centre.location), np.asarray(centre.scatter)

    @double_precision
    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Unnormalised log density at points of shape (..., d): -beta times the loss, plus the log prior density.

        It is -inf outside the support of the prior.
        """
        theta = self._thetas(theta)
        return map_rows(log_density, theta.reshape(-1, self.dim), self.target).reshape(theta.shape[:-1])

    @double_precision
    def leave_one_out(self) -> Influence:
        """KL(posterior || posterior without observation i) for every i, by reweighting the draws."""
        if self.compression is None:
            return influence_by_reweighting(self.beta * each_loss(self.target, self.thinned()))
        some = self.thinned(max(_FEWEST, min(_INFLUENCE_DRAWS, _ROW_LOSSES // self.n)))
        blocks = self.compression.blocks(constrain_rows(self.target.prior, some))
        parts = zip(*(influence_by_reweighting(self.beta * each) for each in blocks), strict=True)
        return Influence(*(self.compression.by_row(np.concatenate(part)) for part in parts))

    def _influence_of(self, rows: Int[np.ndarray, " k"]) -> Influence:
        if self.compression is None:
            return super()._influence_of(rows)
        return influence_by_reweighting(self.beta * self.row_losses(self.thinned(), rows))

    @double_precision
    def row_losses(
        self, positions: Float[np.ndarray, "draws d"], rows: Int[np.ndarray, " k"]
    ) -> Float[np.ndarray, "draws k"]:
        """The losses of some observations at unconstrained parameters."""
        if self.compression is None:
            return each_loss(self.target, positions)[:, rows]
        return self.compression.row_losses(constrain_rows(self.target.prior, positions), rows)

    def thinned(self, draws: int = _INFLUENCE_DRAWS) -> Float[np.ndarray, "draws d"]:
        """About `draws` of the unconstrained draws, evenly spaced, for averages that are expensive to compute."""
        flat = self.result.flat
        return flat[:: max(1, len(flat) // draws)]

    @double_precision
    def noise_error(self) -> float:
        """Error of the rule for the noise: the standard deviation, over draws, of the loss minus that of a finer rule.

        Compare it with the standard deviation of the log density, sqrt(d / 2) for a Gaussian: a tenth of that is
        negligible.
        """
        if isinstance(self.compression, CountedLoss):
            return 0.0  # for one column the rule is a lattice, without a finer one
        x, loss = self.dequantised, uncorrected(self.target.loss)
        multiples = None if self.suspects is None else self.suspects.factor.values
        if self.compression is not None:  # errors of observations are independent: their variances add up
            some = self.compression.order[: self.compression.observations]
            loss, x = self.compression.full.block(0), x[some]
            multiples = None if multiples is None else multiples[some]
        some = self.thinned(_ERROR_DRAWS)
        finer = self.setting.loss(x, rules=_FINER, seed=1)
        if multiples is not None and isinstance(finer, NSMLoss | MarginalLoss):
            finer = finer.reweighted(multiples)
        losses = [map_rows(total_loss, some, self.target._replace(loss=one)) for one in (loss, finer)]
        return float(self.beta * np.sqrt(self.n / len(x)) * np.std(losses[0] - losses[1]))

    @double_precision
    def losses(self, theta: Any) -> Float[np.ndarray, " n"]:
        """The loss of each observation at one theta."""
        theta = checks.vector(theta, "theta", length=self.dim)
        if self.compression is not None:
            return self.compression.by_row(np.concatenate([*self.compression.blocks(theta[None])], axis=1)[0])
        return np.asarray(_losses(self.target.loss, jnp.asarray(theta)))

    def modes(self, starts: int = 64) -> Modes:
        """Search for local maxima of the posterior density from many starts; the highest comes first.

        Half of the starts are draws from the posterior, half from the prior. A mode without draws nearby was either
        missed by the chains, or has almost no probability: compare its height.
        """
        half = checks.integer(starts, "starts", at_least=2) // 2
        prior = np.asarray(_unconstrained_draws(self.target.prior, half))
        flat = self.result.flat
        minima = minimise(energy, self.target, np.concatenate([flat[:: -(-len(flat) // half)], prior]))
        spread = np.maximum(flat.std(axis=0), 1e-12)
        nearest = (((flat[:, None] - minima.points) / spread) ** 2).sum(axis=2).argmin(axis=1)
        return Modes(
            theta=constrain_rows(self.target.prior, minima.points),
            height=minima.values[0] - minima.values,
            fraction=np.bincount(nearest, minlength=len(minima.points)) / len(flat),
        )

    def _variations(self, seed: int) -> Variations:
        some, multiples = self.thinned(_VARIED_DRAWS), None if self.suspects is None else self.suspects.factor.values
        why_not = "" if self.compression is None else COMPRESSED
        found = of_target(self.target, some, seed, self.setting, self.dequantised, multiples, why_not=why_not)
        return Variations(constrain_rows(self.target.prior, some), found)

    def _about_observations(self) -> str:
        return Posterior._about_observations(self)


@double_precision
def _unconstrained_draws(prior: UnconstrainedPrior, count: int) -> np.ndarray:
    return np.asarray(prior.sample(jax.random.key(1), count))


@eqx.filter_jit
def _losses(loss: Loss, theta: Float[Array, " d"]) -> Float[Array, " n"]:
    return loss.each(theta)
