"""Base class of NLE and NSM-Bayes: a normalised surrogate trained by maximum likelihood, and sampling."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Float
from tqdm.auto import tqdm

from nsmbayes._internal import checks
from nsmbayes._internal.caller import warn_user
from nsmbayes._internal.columns import Names, named_matrix
from nsmbayes._internal.options import show_inherited_options
from nsmbayes._internal.precision import in_double
from nsmbayes._internal.random import seed_key
from nsmbayes.calibration import CalibrationResult, SampledProblem, SurrogateCheck
from nsmbayes.diagnostics.reach import MOST
from nsmbayes.errors import InputError
from nsmbayes.losses.cells import CountedLoss
from nsmbayes.losses.evaluated import LossSetting
from nsmbayes.methods.missing import check_missing
from nsmbayes.methods.refinement import RefinableMethod
from nsmbayes.methods.surrogate import require_trained
from nsmbayes.posteriors import GeneralisedPosterior, PosteriorBatch
from nsmbayes.priors import draw_prior, unconstrained
from nsmbayes.samplers import Compression, Sampler, as_sampler
from nsmbayes.serialisation import fill_model, model_arrays, outline_shapes, require_array
from nsmbayes.surrogates import (
    MDN,
    Density,
    MixtureDensityNetwork,
    Scalers,
    SurrogateConfig,
    Trend,
    as_surrogate,
    fit_standardiser,
    trend_alone,
)
from nsmbayes.surrogates.mixture import FEW_COLUMNS
from nsmbayes.suspects import Suspects
from nsmbayes.training import Augment, TrainingSettings, as_settings, fit_density

_TRAINING = TrainingSettings(
    learning_rate=3e-3, weight_decay=0.0, batch_size=512, max_epochs=40, patience=20, schedule="cosine"
)
_ABSURD = 1e30  # observations are clipped at this multiple of the range of the simulations


class LikelihoodMethod(RefinableMethod):
    """A method whose surrogate is a normalised density.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        surrogate: "mdn", "maf", or a surrogate with options of your own, `nsmbayes.MDN(...)`, `nsmbayes.MAF(...)`.
        grid_steps: for columns of x with values on a grid (counts, days): the step of each column, 0 for a continuous
            one. Uniform noise of one step is added to simulations and observations, so that they have a density.
        scaling: scaling of x for the networks: "robust", "zscore" or "none".
        sampler: "adaptive" (an independence sampler, or NUTS if that does not converge), "nuts", "slice", or your own
            `nsmbayes.samplers.Sampler`, for which the next three options are ignored.
        chains: number of chains.
        warmup: tuning steps of each chain, for NUTS and slice sampling.
        draws: draws kept from each chain.
        parameter_names: names for tables and plots.
        x_names: names of the columns of x, for simulations without names. The column names of a DataFrame are stored,
            and observations are reordered by name.
    """

    amortised = "partially"

    def __init_subclass__(cls) -> None:
        """Show the inherited options in the signature and docstring of every subclass."""
        super().__init_subclass__()
        show_inherited_options(cls)

    def __init__(
        self,
        prior: Any,
        *,
        surrogate: str | SurrogateConfig = "mdn",
        grid_steps: Any = None,
        scaling: str = "robust",
        sampler: str | Sampler = "adaptive",
        chains: int = 4,
        warmup: int = 300,
        draws: int = 500,
        parameter_names: tuple[str, ...] | None = None,
        x_names: tuple[str, ...] | None = None,
    ):
        self.support = unconstrained(prior)
        super().__init__(prior, self.support.dim, parameter_names, grid_steps, x_names)
        self.surrogate = as_surrogate(surrogate)
        self.scaling = checks.choice(scaling, "scaling", ("robust", "zscore", "none"))
        self.sampler = as_sampler(sampler, chains=chains, warmup=warmup, draws=draws)
        self._x_range: Float[np.ndarray, "2 d_x"] | None = None

    @property
    def density(self) -> Density:
        """The trained surrogate."""
        return self.network

    @property
    def d_x(self) -> int:
        """Number of columns of x."""
        return self.x_range.shape[1]

    @property
    def x_range(self) -> Float[np.ndarray, "2 d_x"]:
        """The smallest and largest simulated value of each column; the surrogate extrapolates outside this range."""
        return require_trained(self._x_range)

    def train(
        self,
        seed: int = 0,
        *,
        settings: TrainingSettings | None = None,
        devices: Sequence[Any] | None = None,
        progress: bool = True,
    ) -> Self:
        """Train the surrogate by maximum likelihood on all simulations appended so far.

        The default `settings` are `default_training(d_x)`. Several `devices`, e.g. `jax.devices()`, share every batch.
        """
        seed = checks.integer(seed, "seed")
        if not self.surrogate.trainable:
            raise InputError(
                "This method uses an estimator of sbi, which is not trained here. Build another method, without it."
            )
        data = self._data(seed)
        theta, x = data.theta, data.x
        self._warn_of_whole_numbers(x)
        scalers = Scalers(fit_standardiser(x, self.scaling, "x"), fit_standardiser(theta, "robust", "theta"))
        self._warn_of_unseen(draw_prior(self.support, 1000), data.theta_range)
        settings = as_settings(settings, self.default_training(x.shape[1]))
        key_init, key_fit = jax.random.split(seed_key(seed))
        stream = data.stream(scalers, settings)
        density, history = fit_density(
            self.surrogate.build(key_init, scalers, noise=self._noise),
            scalers.theta.standardise(theta),
            scalers.x.standardise(x),
            settings=settings,
            key=key_fit,
            augment=self._augment(),
            stream=stream,
            devices=devices,
            progress=progress,
        )
        self._record(history)
        self._learn(in_double(density), data.x_range)
        self._hold(data.held_out(stream, key_fit, settings))
        return self

    def default_training(self, d_x: int) -> TrainingSettings:
        """Default training settings for x with `d_x` columns; mixtures of several columns are trained for longer."""
        if isinstance(self.surrogate, MDN) and d_x > FEW_COLUMNS:
            return replace(_TRAINING, learning_rate=2e-3, max_epochs=70, batch_size=256, validation_fraction=0.1)
        if isinstance(self.surrogate, MDN) and d_x > 1:
            return replace(_TRAINING, learning_rate=2e-3, max_epochs=100)
        return _TRAINING

    def adopt(self, other: "LikelihoodMethod | Density", *, config: SurrogateConfig | None = None) -> Self:
        """Use the trained surrogate of another method (NLE and NSM-Bayes can share one), or your own density.

        Your own density is a subclass of `nsmbayes.surrogates.Density`. First call `append_simulations` with some of
        its training simulations: they determine the range where it is valid, and whether it is smooth enough. The
        method can be saved if `config` builds densities of the same shape.
        """
        if isinstance(other, LikelihoodMethod):
            self._check_noise(other.density)
            self._network, self._x_range, self.simulations_used = other.density, other.x_range, other.simulations_used
            self.history, self.interrupted, self.dropped = other.history, other.interrupted, other.dropped
            self.x_names = self._same_columns(other.x_names)
            self._hold(other._held_out)
            return self
        density = checks.instance(other, "other", Density, "an nsmbayes.NLE(prior) or a surrogates.Density")
        theta, x = self._all_simulations()
        self._check_noise(density)
        self._check_density(density, theta, x)
        self._warn_of_unseen(draw_prior(self.support, 1000), theta)
        self.history, self.interrupted = None, False
        self.surrogate = self.surrogate if config is None else as_surrogate(config)
        self._learn(in_double(density), x)
        self._hold(None)
        return self

    def network_key(self) -> tuple[Any, ...]:
        """Key of the options that determine the surrogate; methods with the same key can share a surrogate."""
        return ("density", self.surrogate, self.grid_steps, self.scaling, self._noise)

    @property
    def _noise(self) -> tuple[float, float] | None:
        """Lowest and highest noise level that the surrogate must be trained for, or None."""
        return None

    def _augment(self) -> Augment | None:
        """Augmentation of simulations during training, e.g. added noise; None for none."""
        return None

    def _check_noise(self, density: Density) -> None:
        """Raise `InputError` if the density does not support the method's noise levels."""

    def _check_density(self, density: Density, theta: np.ndarray, x: np.ndarray) -> None:
        """Raise `InputError` if the method's loss cannot use the density."""

    def _learn(self, density: Density, x: Float[np.ndarray, "m d_x"]) -> None:
        self._network, self._x_range = density, np.stack([x.min(axis=0), x.max(axis=0)])

    def _reference(self) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, "2 d_x"] | None]:
        if self._simulations:
            return super()._reference()
        theta = draw_prior(self.support, MOST)
        return self.density.draw(theta, 1, np.random.default_rng(0))[:, 0], self.x_range

    def _observations(self, x: Any, missing: str | None = None) -> Float[np.ndarray, "n d_x"]:
        x = observed(x, self.x_names, self.d_x, may_miss=check_missing(missing))
        self.warn_of_outside(x)
        return x

    def warn_of_outside(self, x: Float[np.ndarray, "n d_x"], *, fraction: float = 0.0) -> None:
        """Warn if more than a fraction of the observations is outside the range of the simulations."""
        low, high = self.x_range
        outside = np.flatnonzero(((x < low) | (x > high)).any(axis=1))
        if outside.size > fraction * len(x):
            warn_user(
                f"{outside.size} of {len(x)} observations lie outside the range of the simulations (rows "
                f"{checks.shown(outside)}): the surrogate extrapolates there.",
            )

    def _reined_in(self, x: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, "n d_x"]:
        """Return `x` clipped at 1e30 times the range of the simulations outside that range.

        This makes no difference to a decaying weight, but squares of larger values would overflow.
        """
        low, high = self.x_range
        with np.errstate(over="ignore"):
            return np.clip(x, low - _ABSURD * (high - low), high + _ABSURD * (high - low))

    @abstractmethod
    def build_posterior(
        self, x: Any, *, beta: float | None = None, seed: int = 0, progress: bool = True
    ) -> GeneralisedPosterior:
        """Build the posterior given observations `x` of shape (n, d_x), without further simulation or training."""

    def build_posteriors(self, datasets: Sequence[Any], *, progress: bool = True, **options: Any) -> PosteriorBatch:
        """Build the posteriors of many data sets (n, d_x), one after the other; each may have a different n.

        `options` are those of `build_posterior`. `NSMBayesAmortised(prior).adopt(method)` is faster for very many
        data sets.
        """
        if len(datasets) == 0:
            raise InputError("`datasets` must hold at least one data set.")
        bar = tqdm(datasets, desc="posteriors", disable=not progress)
        return PosteriorBatch.of([self.build_posterior(each, progress=False, **options) for each in bar])

    def _posterior(
        self,
        x: Float[np.ndarray, "n d_x"],
        dequantised: Float[np.ndarray, "n d_x"],
        setting: LossSetting,
        problem: SampledProblem,
        *,
        beta: float,
        calibration: CalibrationResult | None,
        seed: int,
        compression: Compression | CountedLoss | None = None,
        suspects: Suspects | None = None,
        by_distance: bool = False,
        surrogate_check: SurrogateCheck | None = None,
    ) -> GeneralisedPosterior:
        """Build the posterior at a learning rate; warn if its chains have not converged."""
        target, result = problem.draw(beta, seed)
        posterior = GeneralisedPosterior(
            self._provenance(),
            target,
            result._replace(visited=None),
            x,
            setting,
            dequantised=dequantised,
            calibration=calibration,
            compression=compression,
            suspects=suspects,
            by_distance=by_distance,
            surrogate_check=surrogate_check,
        )
        if not posterior.converged:
            warn_user(
                f"The chains of the {self.label} posterior have not converged (R-hat {result.r_hat.max():.2f}, ESS "
                f"{result.ess_bulk.min():.0f}): it may have several modes, see `modes()`. Raise `warmup`, "
                "`draws` or `chains`.",
            )
        return posterior

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments, except the prior."""
        names = ("surrogate", "grid_steps", "scaling", "sampler", "parameter_names", "x_names")
        return {name: getattr(self, name) for name in names}

    def _saved_arrays(self) -> dict[str, np.ndarray]:
        arrays = model_arrays(self.density)
        if {name: array.shape for name, array in arrays.items()} != outline_shapes(
            lambda: self._blank(self.d_x, arrays)
        ):
            raise InputError(
                "The surrogate was adopted from elsewhere and cannot be saved here. Save it where it was trained, or "
                "adopt it with a `config` that builds densities of its shape."
            )
        return arrays | {"x_range": self.x_range}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self._x_range = require_array(arrays, "x_range", (2, None))
        self._network = fill_model(lambda: self._blank(self.x_range.shape[1], arrays), arrays)

    def _blank(self, d_x: int, arrays: dict[str, np.ndarray]) -> Density:
        """Build an untrained surrogate with blank scalers; with a trend, or only a trend, if `arrays` have one."""
        scalers = Scalers.blank(d_x, self.support.dim)
        initial = self.surrogate.build(jax.random.key(0), scalers, noise=self._noise)
        if isinstance(initial, MixtureDensityNetwork) and "model.trend.slope" in arrays:
            trend = Trend.blank(d_x, self.support.dim)
            several = "model.layers[1].weight" in arrays
            return replace(initial, trend=trend) if several else trend_alone(initial, trend)
        return initial


def observed(x: Any, names: Names, d_x: int, *, may_miss: bool = False) -> Float[np.ndarray, "n d_x"]:
    """Convert observations to an array with the columns of the simulations."""
    x = named_matrix(x, "x", names, width=d_x, width_is="columns, like the simulations", missing=True)
    cells = np.isnan(x)
    if cells.any() and not may_miss:
        raise InputError(
            f"`x` has {cells.sum()} NaN (row {checks.shown(np.flatnonzero(cells.any(axis=1)))}). If they are cells "
            "that were not observed, NSMBayes and NLE leave them out: build_posterior(x, missing='marginalise'). "
            "Or drop the rows: x[np.isfinite(x).all(axis=1)]."
        )
    return x
