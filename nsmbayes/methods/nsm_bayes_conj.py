"""NSM-Bayes-conj: a Gaussian posterior from simulations, without MCMC."""

from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes._internal.columns import named_matrix, ordered_sets
from nsmbayes._internal.precision import in_double
from nsmbayes._internal.random import seed_key
from nsmbayes._internal.waiting import stage, waiting
from nsmbayes.calibration import Calibration, ClosedFormProblem, RootCalibration, StochasticCalibration, as_calibration
from nsmbayes.errors import InputError
from nsmbayes.losses import check_noise_levels
from nsmbayes.losses.held_out import HeldOut, family_gradients
from nsmbayes.losses.pointwise import family_matching, noisy_family_matching
from nsmbayes.losses.statistics import DataStatistics, LossRecipe
from nsmbayes.methods.companion import Companion
from nsmbayes.methods.surrogate import SurrogateMethod
from nsmbayes.posteriors import ConjugateBatch, ConjugatePosterior, batch_posteriors
from nsmbayes.priors import GaussianPrior, as_gaussian, same_dimension
from nsmbayes.scatter import ESTIMATORS
from nsmbayes.serialisation import fill_model, model_arrays, require_array
from nsmbayes.surrogates import (
    ExponentialFamily,
    NoisyFamily,
    Scalers,
    fit_standardiser,
    init_exponential_family,
    init_noisy_family,
)
from nsmbayes.surrogates.scaling import KINDS
from nsmbayes.training import TrainingSettings, as_settings, fit, independent_noise
from nsmbayes.weights import IMQ, Excess, PlateauIMQ, Weight, as_excess, as_weight

Family = ExponentialFamily | NoisyFamily

NOISE_LEVELS = tuple(0.2 * 2.0**i for i in range(7))
"""Default noise levels, one step higher than those of `NSMBayes`: a family that is linear in theta fits better with
more noise."""


class NSMBayesConj(SurrogateMethod):
    """Robust Bayesian inference in closed form, amortised over data, prior, weight and learning rate.

    A neural exponential family q(x | theta) ~ exp(T(x)' theta + b(x)) is trained on simulations by score matching.
    With a Gaussian prior, the generalised posterior exp(-beta n L_NSM) prior is then Gaussian for any observations. The
    loss is summed over noise levels (`losses.noise_levels`); the noise level is an input of T and b.

    Args:
        prior: a `GaussianPrior`, or a numpyro Normal or MultivariateNormal.
        weight: weight of an observation as a function of its distance from the bulk.
        scatter: estimator of location and scatter for the weight: "mcd", "mad", or "sample" (not robust).
        excess: downweights observations where there are more than the model explains (`weights.Excess`); None for
            weights by distance alone. The family has no density to compare the data with, so `train` also trains a
            mixture density network for this purpose, and a posterior takes about a second longer.
        noise_levels: noise levels in units of the robust scale of the observations, or (0,) for the paper's loss.
        scaling: scaling of x for the networks: "robust", "zscore", "none"; with noise_levels=(0,) also "robust-asinh".
        scale_theta: whether theta is standardised for the networks.
        whiten: whether to compute the loss in coordinates whitened by the location and scatter of the observations.
            With noise levels this is always the case, column by column.
        resolution: the smallest standard deviation that the posterior may have in any direction, in units of the
            prior's; by default 0.1 with noise levels and 0 without. A family that is linear in theta is an
            approximation over the range of the prior, and its error does not shrink with more data. Where the data
            would give a narrower posterior, the learning rate is lowered, only in the directions concerned.
        calibration: how beta is chosen if `build_posterior` does not get one.
        hidden: width of the hidden layer of T and of b.
        grid_steps: for columns of x with values on a grid: the step of each column, 0 for a continuous one. Uniform
            noise of one step is added to simulations and observations, so that they have a density.
        parameter_names: names for tables and plots.
        x_names: names of the columns of x, for simulations without names. The column names of a DataFrame are stored,
            and observations are reordered by name.

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
    """A learning rate that starts high and falls to zero over few epochs, without early stopping."""
    default_weight = PlateauIMQ(radius=1.25, zeta=1.0, cutoff_radius=5.0, columns=1)  # with noise levels

    def __init__(
        self,
        prior: Any,
        *,
        weight: Weight | None = None,
        scatter: str = "mcd",
        excess: Excess | None = Excess(),  # noqa: B008 (frozen)
        noise_levels: tuple[float, ...] = NOISE_LEVELS,
        scaling: str = "robust",
        scale_theta: bool = True,
        whiten: bool = True,
        resolution: float | None = None,
        calibration: Calibration[ClosedFormProblem] | None = None,
        hidden: int = 128,
        grid_steps: Any = None,
        parameter_names: tuple[str, ...] | None = None,
        x_names: tuple[str, ...] | None = None,
    ):
        gaussian = as_gaussian(prior)
        super().__init__(gaussian, gaussian.dim, parameter_names, grid_steps, x_names)
        self.noise_levels = tuple(check_noise_levels(noise_levels).tolist())
        if weight is None:
            weight = self.default_weight if self._noisy else IMQ(zeta=2.0)
        self.weight = as_weight(weight)
        self.scatter = checks.choice(scatter, "scatter", ESTIMATORS)
        self.excess = as_excess(excess)
        self._companion: Companion | None = None
        self.scaling = checks.choice(scaling, "scaling", KINDS)
        self.scale_theta = checks.flag(scale_theta, "scale_theta")
        self.whiten = checks.flag(whiten, "whiten")
        if self._noisy and (self.scaling == "robust-asinh" or not self.whiten):
            raise InputError(
                '`noise_levels` other than (0,) must have whiten=True and an affine scaling ("robust", "zscore" or '
                '"none"): noise is added to x in units of the observations\' scale. '
                f"Got scaling={self.scaling!r}, whiten={self.whiten}."
            )
        if resolution is None:
            resolution = 0.1 if self._noisy else 0.0
        self.resolution = checks.fraction(resolution, "resolution", finest=1e-6)
        self.calibration: Calibration[ClosedFormProblem] = as_calibration(
            RootCalibration(largest=0.75 if self._noisy else 0.25) if calibration is None else calibration,
            ClosedFormProblem,
            "e.g. nsmbayes.calibration.RootCalibration() or StochasticCalibration()",
        )
        self.hidden = checks.integer(hidden, "hidden", at_least=1)

    @classmethod
    def paper(cls, prior: Any, *, initial_beta: float = 0.1, **options: Any) -> Self:
        """The paper's settings: IMQ with zeta = 1, no noise, z-scored x, raw theta, Algorithm 1 from `initial_beta`."""
        choices: dict[str, Any] = {
            "weight": IMQ(zeta=1.0),
            "excess": None,
            "scaling": "zscore",
            "scale_theta": False,
            "whiten": False,
            "noise_levels": (0.0,),
            "calibration": StochasticCalibration(initial_beta=initial_beta),
        }
        return cls(prior, **(choices | options))

    def train(
        self,
        seed: int = 0,
        *,
        settings: TrainingSettings | None = None,
        devices: Sequence[Any] | None = None,
        progress: bool = True,
    ) -> Self:
        """Train T and b by score matching on all simulations appended so far.

        The default `settings` are `NSMBayesConj.training`, or with noise_levels=(0,) those of the paper,
        `TrainingSettings()`. The mixture density network for `excess` is then trained like that of `NLE`, for at most
        `settings.max_epochs` epochs. Several `devices`, e.g. `jax.devices()`, share every batch.
        """
        theta, x = (data := self._data(seed := checks.integer(seed, "seed"))).theta, data.x
        scalers = Scalers(
            fit_standardiser(x, self.scaling, "x"),
            fit_standardiser(theta, "robust" if self.scale_theta else "none", "theta"),
        )
        companion = None if self.excess is None else self._new_companion()
        if companion is None:  # a companion issues the same warnings
            self._warn_of_whole_numbers(x)
            self._warn_of_unseen(self.prior.sample((1000,), 0), data.theta_range)
        given, settings = settings, as_settings(settings, self.training if self._noisy else TrainingSettings())
        key_init, key_fit = jax.random.split(seed_key(seed))
        stream = data.stream(scalers, settings)
        family, history = fit(
            self._initial(key_init, scalers),
            noisy_family_matching if self._noisy else family_matching,
            scalers.theta.standardise(theta),
            scalers.x.standardise(x),
            settings=settings,
            key=key_fit,
            augment=independent_noise(self.noise_levels[0], self.noise_levels[-1]) if self._noisy else None,
            stream=stream,
            devices=devices,
            progress=progress,
        )
        self._record(history)
        self._network, self._companion = in_double(family), None
        self._hold(data.held_out(stream, key_fit, settings))
        if companion is not None and not self.interrupted:
            self.interrupted = True  # until the density is also trained
            companion.train_for(x.shape[1], seed, given, devices, progress)
            self._companion, self.interrupted = companion, companion.interrupted
        return self

    def _new_companion(self) -> Companion:
        """Build an untrained density with the same simulations."""
        companion = Companion(self.prior, grid_steps=self.grid_steps)
        companion._simulations, companion._campaigns = self._simulations, self._campaigns
        return companion

    def network_key(self) -> tuple[Any, ...]:
        """Key of the options that determine the networks; methods with the same key can share networks."""
        noise = (self.noise_levels[0], self.noise_levels[-1])
        return ("family", noise, self.scaling, self.scale_theta, self.hidden, self.grid_steps, self.excess is not None)

    def adopt(self, other: "NSMBayesConj | Family") -> Self:
        """Use the trained networks of another NSMBayesConj, with the prior, weight and calibration of this method.

        `other` can also be your own `ExponentialFamily`, or with noise levels a `NoisyFamily`. These come without a
        density for `excess`: weights are then by distance alone, and posteriors say so.
        """
        if isinstance(other, NoisyFamily if self._noisy else ExponentialFamily):
            self._network, self._companion = in_double(other), None
            self._hold(None)
            self.history, self.interrupted = None, False
            return self
        method: NSMBayesConj = checks.instance(other, "other", NSMBayesConj, "an nsmbayes.NSMBayesConj(prior)")
        if (own := self.network_key()) != (others := method.network_key()):
            raise InputError(f"`other` has networks of another kind: {others}, where this method has {own}.")
        self._network, self.history, self.interrupted = method.family, method.history, method.interrupted
        self.simulations_used, self._companion = method.simulations_used, method._companion
        self.dropped, self.x_names = method.dropped, self._same_columns(method.x_names)
        self._hold(method._held_out)
        return self

    def build_posterior(
        self,
        x: Any,
        *,
        beta: float | None = None,
        prior: Any = None,
        weight: Weight | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> ConjugatePosterior:
        """Build the posterior given observations `x` of shape (n, d_x), without further simulation or training.

        Args:
            x: the observations, outliers included.
            beta: the learning rate; by default it is calibrated by bootstrap coverage (`seed` draws the resamples).
            prior: replaces the method's prior; must be Gaussian.
            weight: replaces the method's weight.
            seed: for the calibration, and for the fits of `excess`.
            progress: whether to print the current step on a terminal once it has taken two seconds.
        """
        with waiting("posterior", progress=progress):
            return self._build(x, beta, prior, weight, checks.integer(seed, "seed"), self.excess)

    def _build(self, x: Any, beta: Any, prior: Any, weight: Any, seed: int, excess: Any) -> ConjugatePosterior:
        recipe, beta = self._recipe(weight), checks.optional_positive(beta, "beta")
        x = named_matrix(x, "x", self.x_names, width=self.d_x, width_is="columns, like the simulations")
        chosen, result, suspects = self._prior_or(prior), None, None
        if excess is not None and self._companion is not None:
            self._companion.warn_of_outside(x, fraction=0.2)  # a smaller fraction can be outliers
            suspects = self._companion.suspects(excess, recipe, chosen, x, seed)
        centre, multiples = (None, None) if suspects is None else (suspects.centre, suspects.factor.values)
        statistics = DataStatistics.of(recipe, x, centre, multiples)
        if beta is None:
            stage("calibrating the learning rate")
            problem = ClosedFormProblem(chosen, statistics, self.resolution)
            result = self.calibration.calibrate(problem, seed=seed)
            beta = result.beta
        posterior = ConjugatePosterior(
            self._provenance(),
            chosen,
            statistics,
            beta,
            resolution=self.resolution,
            calibration=result,
            suspects=suspects,
            by_distance=self.excess is not None and suspects is None,
        )
        stage("checking the surrogate")
        return posterior.checked(self.surrogate_test(), lower=result is not None)

    def _held_out_gradients(self, held_out: HeldOut) -> Float[np.ndarray, "m d_theta"] | None:
        if (density := self._companion) is None or not isinstance(self.family, NoisyFamily):
            return None
        weight = self.weight.for_columns(self.d_x)
        return family_gradients(self.family, density.mixture, weight, self.noise_levels, held_out)

    def build_posteriors(
        self, x: Any, *, beta: float | None = None, prior: Any = None, weight: Weight | None = None, seed: int = 0
    ) -> ConjugateBatch:
        """Build the posteriors of k data sets `x` (k, n, d_x), each with its own learning rate or all at `beta`.

        Observations are weighted by distance alone: `excess` applies only to single data sets. The columns of
        DataFrames in a list are reordered like those of the simulations.
        """
        recipe = self._recipe(weight)
        x = checks.finite_array(ordered_sets(x, self.x_names, self.d_x), "x")
        if x.ndim != 3 or 0 in x.shape or x.shape[2] != self.d_x:
            raise InputError(f"`x` must have shape (datasets, n, {self.d_x}); got {x.shape}.")
        seed = checks.integer(seed, "seed")
        if (beta := checks.optional_positive(beta, "beta")) is None:
            return ConjugateBatch.of([self._build(y, None, prior, weight, seed + i, None) for i, y in enumerate(x)])
        return batch_posteriors(recipe, self._prior_or(prior), x, beta, seed, self.resolution)

    def _reference(self) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, "2 d_x"] | None]:
        return super()._reference() if self._companion is None else self._companion._reference()

    @property
    def _noisy(self) -> bool:
        return self.noise_levels != (0.0,)

    def _initial(self, key: PRNGKeyArray, scalers: Scalers) -> Family:
        init = init_noisy_family if self._noisy else init_exponential_family
        return init(key, *scalers, hidden=self.hidden)

    @property
    def family(self) -> Family:
        """The trained networks."""
        return self.network

    @property
    def d_x(self) -> int:
        """Width of an observation."""
        return len(self.family.scale_x.scale)

    def _recipe(self, weight: Weight | None) -> LossRecipe:
        own = (self.weight if weight is None else as_weight(weight)).for_columns(self.d_x)
        return LossRecipe(self.family, own, self.scatter, self.whiten, self.noise_levels, self.grid_steps)

    def _prior_or(self, prior: Any) -> GaussianPrior:
        return self.prior if prior is None else same_dimension(as_gaussian(prior), self.dim)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments, except the prior."""
        names = (
            "weight", "scatter", "excess", "noise_levels", "scaling", "scale_theta", "whiten", "resolution",
            "calibration", "hidden", "grid_steps", "parameter_names", "x_names",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def _saved_arrays(self) -> dict[str, np.ndarray]:
        beside = {} if self._companion is None else self._companion.saved_arrays()
        return model_arrays(self.family) | beside

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        d_x, asinh = len(require_array(arrays, "model.scale_x.centre", (None,))), self.scaling == "robust-asinh"
        self._network = fill_model(
            lambda: self._initial(jax.random.key(0), Scalers.blank(d_x, self.dim, asinh=asinh)), arrays
        )
        self._companion = self._new_companion().restored(arrays, d_x)
