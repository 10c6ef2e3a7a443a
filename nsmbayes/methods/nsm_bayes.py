"""NSM-Bayes: robust inference with any twice differentiable surrogate and any prior."""

from dataclasses import asdict
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes.calibration import PathCalibration, ReweightingCalibration
from nsmbayes.levels import DEFAULT_LEVELS, check_levels
from nsmbayes.methods.base import as_weight
from nsmbayes.methods.density import DensityMethod
from nsmbayes.methods.noise import correlated_noise
from nsmbayes.posteriors.data_loss import NSMLoss, nsm_loss
from nsmbayes.posteriors.generalised import GeneralisedPosterior
from nsmbayes.surrogates import Density, Frame, NoisyFlow, Standardiser, init_noisy_flow, require_smooth
from nsmbayes.training import Augment
from nsmbayes.weights import ESTIMATORS, IMQ, LocationScatter, PlateauIMQ, Weight, fit_location_scatter, from_config

_FINER = 16  # rules for the noise by which the error of one is judged


class NSMBayes(DensityMethod):
    """Robust generalised Bayesian inference with a neural score-matching loss.

    The surrogate is trained as for NLE. The loss is the weighted score-matching loss, computed in coordinates whitened
    by the robust location and scatter of the observations and summed over noise levels (see `nsmbayes.levels`); with
    them beta = 1 is the natural learning rate, which calibration can only lower. `levels=(0,)` is the paper's loss.
    With other levels surrogate="maf" is a flow that is told the noise and trained with it (`surrogates.NoisyFlow`).

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        weight: how observations are trusted as a function of their distance from the bulk; by default fully up to two
            robust standard deviations, and less at every noise level beyond twelve.
        scatter: the estimator of location and scatter behind the weight: "mcd", "mad", or "sample" (not robust).
        levels: noise levels in units of the robust scale of the observations, or (0,).
        whiten: compute the loss in whitened coordinates; if not, in the user's units, as in the paper.
        calibration: how beta is chosen where `build_posterior` is not given one: a `PathCalibration` (default), a
            `ReweightingCalibration` (the paper's Algorithm 2), or None for beta = 1.
        options: those of `DensityMethod`.

    Example:
        >>> import nsmbayes as nsm
        >>> method = nsm.NSMBayes(nsm.tasks.get("gnk").prior, weight=nsm.IMQ(zeta=2.0))
        >>> method.levels[0]
        0.1
    """

    name, label = "nsm-bayes", "NSM-Bayes"
    default_weight = PlateauIMQ(radius=2.0, zeta=1.0, reach=12.0)

    def __init__(
        self,
        prior: Any,
        *,
        weight: Weight | None = None,
        scatter: str = "mcd",
        levels: tuple[float, ...] = DEFAULT_LEVELS,
        whiten: bool = True,
        calibration: PathCalibration | ReweightingCalibration | None = PathCalibration(),  # noqa: B008 (frozen)
        **options: Any,
    ):
        super().__init__(prior, **options)
        self.weight = as_weight(weight if weight is not None else self.default_weight)
        self.scatter = _checks.choice(scatter, "scatter", ESTIMATORS)
        self.levels = tuple(check_levels(levels).tolist())
        self.whiten = _checks.flag(whiten, "whiten")
        if calibration is not None:
            kinds = PathCalibration | ReweightingCalibration
            _checks.instance(calibration, "calibration", kinds, "nsmbayes.PathCalibration()")
        self.calibration = calibration

    @classmethod
    def paper(cls, prior: Any, *, initial_beta: float = 1.0, **options: Any) -> Self:
        """The paper's choices: the flow and sampler of `NLE.paper`, IMQ with zeta = 1, raw x, Algorithm 2."""
        choices: dict[str, Any] = {
            "surrogate": "maf",
            "hidden": (50,),
            "scaling": "zscore",
            "sampler": "slice",
            "warmup": 500,
            "weight": IMQ(zeta=1.0),
            "levels": (0.0,),
            "whiten": False,
            "calibration": ReweightingCalibration(initial_beta=initial_beta),
        }
        method = cls(prior, **(choices | options))
        method.gaussian_flow = True
        return method

    def build_posterior(
        self, x: Any, *, beta: float | None = None, weight: Weight | None = None, seed: int = 0
    ) -> GeneralisedPosterior:
        """The posterior given observations `x` of shape (n, d_x); nothing is simulated or trained.

        Args:
            x: the observations, outliers included.
            beta: the learning rate; by default what the method's calibration finds.
            weight: another weight than the method's own.
            seed: for the sampler and the calibration.
        """
        x, seed = self._observations(x), _checks.integer(seed, "seed")
        weight = self.weight if weight is None else as_weight(weight)
        dequantised = self._dequantise(x, seed, 1)
        centre = fit_location_scatter(dequantised, estimator=self.scatter)
        loss = self._loss(weight, centre, dequantised)
        if beta is not None or self.calibration is None:
            chosen = 1.0 if beta is None else _checks.positive(beta, "beta")
            posterior = self._posterior(x, (weight, centre), *self._draw(loss, chosen, seed=seed))
        else:
            found = self.calibration(lambda b, s: self._draw(loss, b, seed=s), len(x), seed=seed)
            posterior = self._posterior(x, (weight, centre), found.target, found.draws, calibration=found.calibration)
        posterior.finer_loss = lambda: self._loss(weight, centre, dequantised, rules=_FINER, seed=1)
        return posterior

    def _check_noise(self, density: Density) -> None:
        if self.levels == (0.0,):
            return
        if not density.smoothable:
            raise InputError(
                f"A {type(density).__name__} cannot be smoothed exactly, and this method has noise levels. Build it "
                "with NSMBayes(prior, levels=(0,)), use a Gaussian mixture, or train a flow with noise: "
                "NSMBayes(prior, surrogate='maf')."
            )
        if isinstance(density, NoisyFlow):
            low, high = density.levels
            if self.levels[0] < low or self.levels[-1] > high:
                raise InputError(
                    f"`levels` of this method go from {self.levels[0]:g} to {self.levels[-1]:g}, but the flow was "
                    f"trained with noise from {low:g} to {high:g}. Choose levels within that, or train again."
                )

    def _check_density(self, density: Density, theta: Float[np.ndarray, "m d"], x: Float[np.ndarray, "m d_x"]) -> None:
        require_smooth(density, theta, x)

    @property
    def _noisy_flow(self) -> bool:
        """Whether the surrogate has to be trained with noise; a mixture is smoothed exactly."""
        return self.surrogate == "maf" and self.levels != (0.0,)

    def network_key(self) -> tuple[Any, ...]:
        """The same; a flow that is told the noise knows some levels only."""
        return super().network_key() + ((self.levels[0], self.levels[-1]),) * self._noisy_flow

    def _augment(self) -> Augment | None:
        return correlated_noise(self.levels[0], self.levels[-1]) if self._noisy_flow else None

    def _initial(self, key: PRNGKeyArray, scale_x: Standardiser, scale_theta: Standardiser) -> Density:
        if not self._noisy_flow:
            return super()._initial(key, scale_x, scale_theta)
        return init_noisy_flow(
            key,
            scale_x,
            scale_theta,
            hidden=self._widths(len(scale_x.scale)),
            floor=self.floor,
            ceiling=self.ceiling,
            levels=(self.levels[0], self.levels[-1]),
        )

    @double_precision
    def _loss(self, weight: Weight, centre: LocationScatter, x: Float[np.ndarray, "n d_x"], **noise: int) -> NSMLoss:
        if self.whiten:
            frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
        else:
            frame = Frame(jnp.zeros(x.shape[1]), jnp.eye(x.shape[1]))
        return nsm_loss(self._trained(), weight, centre, frame, x, self.levels, **noise)

    def _options(self) -> dict[str, Any]:
        return super()._options() | {
            "weight": self.weight.config(),
            "scatter": self.scatter,
            "levels": self.levels,
            "whiten": self.whiten,
            "calibration": None if self.calibration is None else _describe(self.calibration),
        }

    @classmethod
    def _read_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        calibration = options["calibration"]
        return super()._read_options(options) | {
            "weight": from_config(options["weight"]),
            "levels": tuple(options["levels"]),
            "calibration": None if calibration is None else _CALIBRATIONS[calibration.pop("kind")](**calibration),
        }


_CALIBRATIONS = {"path": PathCalibration, "reweighting": ReweightingCalibration}


def _describe(calibration: PathCalibration | ReweightingCalibration) -> dict[str, Any]:
    kind = next(name for name, kind in _CALIBRATIONS.items() if isinstance(calibration, kind))
    return {"kind": kind} | asdict(calibration)
