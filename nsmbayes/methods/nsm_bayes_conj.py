"""NSM-Bayes-conj: simulations in, Gaussian posterior out, without MCMC."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes import _checks, weights
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes._seeds import seed_key
from nsmbayes.calibration import RootCalibration, StochasticCalibration
from nsmbayes.levels import check_levels
from nsmbayes.losses import score_matching
from nsmbayes.methods.base import Method, NotTrainedError, as_settings, as_weight, warn_of_unseen_parameters
from nsmbayes.methods.noise import independent_noise
from nsmbayes.posteriors.batch import ConjugateBatch, batch_posteriors
from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.family_loss import LossRecipe, total_loss
from nsmbayes.priors import GaussianPrior, as_gaussian
from nsmbayes.storage import fill_model, model_arrays, write_model
from nsmbayes.surrogates import (
    ExponentialFamily,
    NoisyFamily,
    Standardiser,
    fit_standardiser,
    init_exponential_family,
    init_noisy_family,
)
from nsmbayes.surrogates.scaling import KINDS
from nsmbayes.training import TrainingSettings, fit
from nsmbayes.weights import IMQ, PlateauIMQ, Weight

Family = ExponentialFamily | NoisyFamily
Calibrator = RootCalibration | StochasticCalibration


LEVELS = tuple(0.2 * 2.0**i for i in range(7))
"""Default noise levels. The larger the noise, the better a family that is linear in theta fits: one step higher than
those of `NSMBayes`."""


def _training_loss(family: ExponentialFamily, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]):
    return score_matching(family.network_derivatives(t, z))


def _noisy_training_loss(family: NoisyFamily, t: Float[Array, " d_theta"], noisy: Float[Array, " 2*d_x"]):
    """In units of the noise, so that all levels count alike."""
    return score_matching(family.network_derivatives(t, *jnp.split(noisy, 2)))


class NSMBayesConj(Method):
    """Robust Bayesian inference in closed form, amortised over data, prior, weight and learning rate.

    A neural exponential family q(x | theta) ~ exp(T(x)' theta + b(x)) is trained on simulations by score matching;
    with a Gaussian prior the generalised posterior exp(-beta n L_NSM) prior is then Gaussian for any observations. The
    loss is summed over noise levels (see `nsmbayes.levels`), for which T and b know how noisy x is.

    Args:
        prior: a `GaussianPrior`, or a numpyro Normal or MultivariateNormal.
        weight: how observations are trusted as a function of their distance from the bulk.
        scatter: the estimator of location and scatter behind the weight: "mcd", "mad", or "sample" (not robust).
        levels: noise levels in units of the robust scale of the observations, or (0,) for the paper's loss.
        scaling: how networks see x: "robust", "zscore" or "none"; with levels=(0,) also "robust-asinh".
        scale_theta: whether networks see theta standardised in the same way.
        whiten: compute the loss in coordinates whitened by the location and scatter of the observations. With noise
            levels that is always so, column by column.
        resolution: the smallest standard deviation that the posterior may have in any direction, in units of the
            prior's; by default 0.1 with noise levels and 0 without. A family that is linear in theta is an
            approximation over the range of the prior, and its error does not shrink with more data: where they ask for
            more than this, the learning rate is lowered, in the directions concerned and not in the others.
        calibration: how beta is chosen where `build_posterior` is not given one.
        hidden: width of the hidden layer of T and of b.
        lattice: for x whose columns take only multiples of a step: the steps, 0 for a continuous column. Simulations
            then get uniform noise of one step before training; observations are taken as they are.
        parameter_names: names for tables and plots.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.NSMBayesConj(task.prior)
        >>> settings = nsm.TrainingSettings(max_epochs=2)
        >>> _ = method.append_simulations(*task.simulate(2000, seed=0)).train(settings=settings, progress=False)
        >>> posterior = method.build_posterior(task.observe(100, seed=1).x)
        >>> posterior.sample((500,), seed=0).shape
        (500, 4)
    """

    amortised = "fully"
    name, label = "nsm-bayes-conj", "NSM-Bayes-conj"
    training = TrainingSettings(learning_rate=1e-2, batch_size=256, max_epochs=150, patience=150, schedule="cosine")
    """A learning rate that starts high and falls to zero over few epochs, all of which are made."""
    default_weight = PlateauIMQ(radius=1.25, zeta=1.0, reach=5.0)
    """With noise levels."""

    def __init__(
        self,
        prior: Any,
        *,
        weight: Weight | None = None,
        scatter: str = "mcd",
        levels: tuple[float, ...] = LEVELS,
        scaling: str = "robust",
        scale_theta: bool = True,
        whiten: bool = True,
        resolution: float | None = None,
        calibration: Calibrator | None = None,
        hidden: int = 128,
        lattice: Any = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        self.prior: GaussianPrior = as_gaussian(prior)
        super().__init__(self.prior.dim, parameter_names, lattice)
        self.levels = tuple(check_levels(levels).tolist())
        if weight is None:
            weight = self.default_weight if self._noisy else IMQ(zeta=2.0)
        self.weight = as_weight(weight)
        self.scatter = _checks.choice(scatter, "scatter", weights.ESTIMATORS)
        self.scaling = _checks.choice(scaling, "scaling", KINDS)
        self.scale_theta = _checks.flag(scale_theta, "scale_theta")
        self.whiten = _checks.flag(whiten, "whiten")
        if self._noisy and (self.scaling == "robust-asinh" or not self.whiten):
            raise InputError(
                '`levels` other than (0,) must have whiten=True and an affine scaling ("robust", "zscore" or "none"): '
                "noise is added to x in units of the observations' scale. "
                f"Got scaling={self.scaling!r}, whiten={self.whiten}."
            )
        if resolution is None:
            resolution = 0.1 if self._noisy else 0.0
        self.resolution = _checks.fraction(resolution, "resolution")
        self.calibration: Calibrator = _checks.instance(
            RootCalibration(largest=0.75 if self._noisy else 0.25) if calibration is None else calibration,
            "calibration",
            Calibrator,
            "nsmbayes.RootCalibration() or nsmbayes.StochasticCalibration()",
        )
        self.hidden = _checks.integer(hidden, "hidden", at_least=1)
        self.family: Family | None = None

    @classmethod
    def paper(cls, prior: Any, *, initial_beta: float = 0.1, **options: Any) -> Self:
        """The paper's choices: IMQ with zeta = 1, no noise, z-scored x, raw theta, Algorithm 1 from `initial_beta`."""
        choices: dict[str, Any] = {
            "weight": IMQ(zeta=1.0),
            "scaling": "zscore",
            "scale_theta": False,
            "whiten": False,
            "levels": (0.0,),
            "calibration": StochasticCalibration(initial_beta=initial_beta),
        }
        return cls(prior, **(choices | options))

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Train T and b by score matching on all simulations appended so far.

        Without `settings`: those of `NSMBayesConj.training`, or with levels=(0,) the paper's, `TrainingSettings()`.
        """
        theta, x = self._all_simulations()
        seed = _checks.integer(seed, "seed")
        x = self._dequantise(x, seed, 0)
        scale_x = fit_standardiser(x, self.scaling, "x")
        scale_theta = fit_standardiser(theta, "robust" if self.scale_theta else "none", "theta")
        warn_of_unseen_parameters(self.prior.sample((1000,), 0), theta, self.parameter_names)
        key_init, key_fit = jax.random.split(seed_key(seed))
        family, self.history = fit(
            self._initial(key_init, scale_x, scale_theta),
            _noisy_training_loss if self._noisy else _training_loss,
            scale_theta.standardise(theta),
            scale_x.standardise(x),
            settings=as_settings(settings, self.training if self._noisy else TrainingSettings()),
            key=key_fit,
            augment=independent_noise(self.levels[0], self.levels[-1]) if self._noisy else None,
            progress=progress,
        )
        self.family = _in_double(family)
        return self

    def network_key(self) -> tuple[Any, ...]:
        """What its networks are but for the simulations and the seed: methods with the same key can share them."""
        noise = (self.levels[0], self.levels[-1])
        return ("family", noise, self.scaling, self.scale_theta, self.hidden, self.lattice)

    def adopt(self, other: "NSMBayesConj") -> Self:
        """Use the networks that another NSMBayesConj has trained, with a prior, weight and calibration of one's own."""
        other = _checks.instance(other, "other", NSMBayesConj, "nsmbayes.NSMBayesConj(prior)")
        family = other._trained()
        if (own := self.network_key()) != (others := other.network_key()):
            raise InputError(f"`other` has networks of another kind: {others}, where this method has {own}.")
        self.family, self.history, self.simulations_used = family, other.history, other.simulations_used
        return self

    def build_posterior(
        self, x: Any, *, beta: float | None = None, prior: Any = None, weight: Weight | None = None, seed: int = 0
    ) -> ConjugatePosterior:
        """The posterior given observations `x` of shape (n, d_x); nothing is simulated or trained.

        Args:
            x: the observations, outliers included.
            beta: the learning rate; calibrated by bootstrap coverage if not given (`seed` draws the resamples).
            prior: another Gaussian prior than the method's own.
            weight: another weight than the method's own.
            seed: for the calibration.
        """
        _checks.integer(seed, "seed")
        recipe = self._recipe(weight)
        x = _checks.matrix(x, "x", width=self.d_x, width_is="columns, like the simulations")
        chosen = self._prior_or(prior)
        loss = recipe.fit(x)
        start = 1.0 if beta is None else _checks.positive(beta, "beta")
        posterior = ConjugatePosterior(
            chosen,
            recipe,
            loss,
            (x,),
            total_loss(loss, x),
            start,
            parameter_names=self.parameter_names,
            resolution=self.resolution,
        )
        if beta is not None:
            return posterior
        calibration = self.calibration(posterior, seed=seed)
        return posterior.with_beta(calibration.beta, calibration=calibration)

    def build_posteriors(
        self, x: Any, *, beta: float, prior: Any = None, weight: Weight | None = None, seed: int = 0
    ) -> ConjugateBatch:
        """The posteriors of k data sets `x` of shape (k, n, d_x), at a given learning rate, in one vectorised run."""
        recipe = self._recipe(weight)
        x = _checks.finite_array(x, "x")
        if x.ndim != 3 or 0 in x.shape or x.shape[2] != self.d_x:
            raise InputError(f"`x` must have shape (datasets, n, {self.d_x}); got {x.shape}.")
        beta = _checks.positive(beta, "beta")
        seed = _checks.integer(seed, "seed")
        return batch_posteriors(recipe, self._prior_or(prior), x, beta, seed, self.resolution)

    @property
    def _noisy(self) -> bool:
        return self.levels != (0.0,)

    def _initial(self, key: PRNGKeyArray, scale_x: Standardiser, scale_theta: Standardiser) -> Family:
        init = init_noisy_family if self._noisy else init_exponential_family
        return init(key, scale_x, scale_theta, hidden=self.hidden)

    @property
    def d_x(self) -> int:
        """Width of an observation."""
        return len(self._trained().scale_x.scale)

    def _trained(self) -> Family:
        if self.family is None:
            raise NotTrainedError("This method is not trained yet: call append_simulations(theta, x), then train().")
        return self.family

    def _recipe(self, weight: Weight | None) -> LossRecipe:
        weight = self.weight if weight is None else as_weight(weight)
        return LossRecipe(self._trained(), weight, self.scatter, self.whiten, self.levels)

    def _prior_or(self, prior: Any) -> GaussianPrior:
        if prior is None:
            return self.prior
        prior = as_gaussian(prior)
        if prior.dim != self.prior.dim:
            raise InputError(f"`prior` must be over {self.prior.dim} parameters; got {prior.dim}.")
        return prior

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the trained method as a folder (JSON and safetensors). Simulations are not saved."""
        family = self._trained()
        header = {
            "method": self.name,
            "weight": self.weight.config(),
            "scatter": self.scatter,
            "scaling": self.scaling,
            "scale_theta": self.scale_theta,
            "whiten": self.whiten,
            "levels": self.levels,
            "resolution": self.resolution,
            "hidden": self.hidden,
            "lattice": self.lattice,
            "parameter_names": list(self.parameter_names),
            "calibration": {"kind": type(self.calibration).__name__, **asdict(self.calibration)},
        }
        arrays = {"prior.mean": self.prior.mean, "prior.covariance": self.prior.covariance} | model_arrays(family)
        return write_model(path, header, arrays, overwrite=overwrite)

    @classmethod
    def from_saved(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild a method from what `save` wrote."""
        options = dict(header["calibration"])
        calibrator = _CALIBRATORS[options.pop("kind")]
        method = cls(
            GaussianPrior(arrays["prior.mean"], arrays["prior.covariance"]),
            weight=weights.from_config(header["weight"]),
            calibration=calibrator(**options),
            parameter_names=tuple(header["parameter_names"]),
            lattice=header.get("lattice"),
            levels=tuple(header.get("levels", (0.0,))),
            resolution=header.get("resolution", 0.0),
            **{key: header[key] for key in ("scatter", "scaling", "scale_theta", "whiten", "hidden")},
        )
        d_x = arrays["model.scale_x.centre"].shape[0]
        blank_x = Standardiser(jnp.zeros(d_x), jnp.ones(d_x), asinh=method.scaling == "robust-asinh")
        blank_theta = Standardiser(jnp.zeros(method.prior.dim), jnp.ones(method.prior.dim), asinh=False)
        template = method._initial(jax.random.key(0), blank_x, blank_theta)
        method.family = fill_model(_in_double(template), arrays)
        return method


_CALIBRATORS = {kind.__name__: kind for kind in (RootCalibration, StochasticCalibration)}


@double_precision
def _in_double(family: Family) -> Family:
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), family)
