"""What NLE and NSM-Bayes share: a normalised surrogate trained by maximum likelihood, and sampling."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import in_double
from nsmbayes._seeds import seed_key
from nsmbayes.methods.base import Method, NotTrainedError, as_settings, warn_of_unseen_parameters
from nsmbayes.posteriors.data_loss import DataLoss
from nsmbayes.posteriors.drawn import MAX_R_HAT, MIN_ESS, draw_prior
from nsmbayes.posteriors.generalised import (
    GeneralisedPosterior,
    Target,
    around_modes,
    log_density,
    log_prior,
    starting_points,
    total_loss,
)
from nsmbayes.posteriors.learning_rate import Calibration
from nsmbayes.priors import GaussianPrior, unconstrained
from nsmbayes.samplers import (
    ConvergenceError,
    Draws,
    require_converged,
    sample_independence,
    sample_nuts,
    sample_slice,
)
from nsmbayes.storage import fill_model, model_arrays, write_model
from nsmbayes.surrogates import Density, Standardiser, fit_standardiser, init_mixture_density_network
from nsmbayes.training import Augment, TrainingSettings, fit
from nsmbayes.weights import LocationScatter, Weight

_CANDIDATES = 250  # prior draws each chain chooses its start from
_JUDGED = 4 * MIN_ESS  # draws: fewer cannot show whether a sampler works
_ATTEMPTS = 2  # of the adaptive sampler, before NUTS

_TRAINING = TrainingSettings(
    learning_rate=3e-3, weight_decay=0.0, batch_size=512, max_epochs=40, patience=20, schedule="cosine"
)


def _training_loss(density: Density, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
    return density.training_loss(t, z)


def _shapes(arrays: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


class DensityMethod(Method):
    """A method whose surrogate is a mixture density network or a masked autoregressive flow.

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        surrogate: "mdn" or "maf".
        components: Gaussian components of a mixture density network.
        floor: smallest standard deviation of a component, in units of the robust scale of the simulations.
        ceiling: largest diagonal of its covariance factor, in the same units.
        hidden: widths of the hidden layers; by default two of 64, and three for a mixture of several columns of x.
        ensemble: how many mixture density networks are trained, in one run, and averaged.
        lattice: for x whose columns take only multiples of a step (counts, days): the steps, 0 for a continuous
            column. Simulations and observations then get uniform noise of one step, so that they have a density.
        scaling: how networks see x: "robust", "zscore" or "none".
        sampler: "adaptive" (an independence sampler, and NUTS where it does not converge), "nuts" or "slice".
        chains: number of chains.
        warmup: steps of each chain of NUTS or slice sampling that are spent on tuning.
        draws: draws kept from each chain.
        parameter_names: names for tables and plots.
    """

    amortised = "partially"
    label: str
    gaussian_flow = False  # the paper's preset: a flow in one dimension, which is a conditional Gaussian

    def __init__(
        self,
        prior: Any,
        *,
        surrogate: Literal["mdn", "maf"] = "mdn",
        components: int = 10,
        floor: float = 0.02,
        ceiling: float = 1e3,
        hidden: tuple[int, ...] | None = None,
        ensemble: int = 1,
        lattice: Any = None,
        scaling: str = "robust",
        sampler: Literal["adaptive", "nuts", "slice"] = "adaptive",
        chains: int = 4,
        warmup: int = 300,
        draws: int = 500,
        parameter_names: tuple[str, ...] | None = None,
    ):
        self.prior = prior
        self.support = unconstrained(prior)
        super().__init__(self.support.dim, parameter_names, lattice)
        self.surrogate = _checks.choice(surrogate, "surrogate", ("mdn", "maf"))
        self.ensemble = _checks.integer(ensemble, "ensemble", at_least=1)
        if self.surrogate == "maf" and self.ensemble > 1:
            raise InputError("`ensemble` needs surrogate='mdn': only mixtures are averaged in closed form.")
        self.components = _checks.integer(components, "components", at_least=1)
        self.floor, self.ceiling = _checks.positive(floor, "floor"), _checks.positive(ceiling, "ceiling")
        if self.floor >= self.ceiling:
            raise InputError(f"`floor` ({floor}) must be below `ceiling` ({ceiling}).")
        self.hidden = None if hidden is None else tuple(_checks.integer(w, "hidden", at_least=1) for w in hidden)
        self.scaling = _checks.choice(scaling, "scaling", ("robust", "zscore", "none"))
        self.sampler = _checks.choice(sampler, "sampler", ("adaptive", "nuts", "slice"))
        self.chains = _checks.integer(chains, "chains", at_least=2)
        self.warmup = _checks.integer(warmup, "warmup", at_least=10)
        self.draws = _checks.integer(draws, "draws", at_least=10)
        self.density: Density | None = None

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Train the surrogate by maximum likelihood on all simulations appended so far.

        Without `settings`: those of `default_training(d_x)`.
        """
        theta, x = self._all_simulations()
        seed = _checks.integer(seed, "seed")
        x = self._dequantise(x, seed, 0)
        scale_x = fit_standardiser(x, self.scaling, "x")
        scale_theta = fit_standardiser(theta, "robust", "theta")
        warn_of_unseen_parameters(draw_prior(self.support, 1000), theta, self.parameter_names)
        key_init, key_fit = jax.random.split(seed_key(seed))
        density, self.history = fit(
            self._initial(key_init, scale_x, scale_theta),
            _training_loss,
            scale_theta.standardise(theta),
            scale_x.standardise(x),
            settings=as_settings(settings, self.default_training(x.shape[1])),
            key=key_fit,
            augment=self._augment(),
            progress=progress,
        )
        self.density = in_double(density)
        self._seen = np.stack([x.min(axis=0), x.max(axis=0)])
        return self

    def default_training(self, d_x: int) -> TrainingSettings:
        """How the surrogate of x with `d_x` columns is trained by default: a mixture of several columns for longer."""
        if self._joint_mixture(d_x):
            return replace(_TRAINING, learning_rate=2e-3, max_epochs=100)
        return _TRAINING

    def _joint_mixture(self, d_x: int) -> bool:
        return self.surrogate == "mdn" and d_x > 1

    def _widths(self, d_x: int) -> tuple[int, ...]:
        """Of the hidden layers."""
        default = (64, 64, 64) if self._joint_mixture(d_x) else (64, 64)
        return default if self.hidden is None else self.hidden

    def adopt(self, other: "DensityMethod | Density") -> Self:
        """Use the surrogate that another method has trained: NLE and NSM-Bayes can share one.

        Or a density of your own: a subclass of `nsmbayes.surrogates.Density`. Call `append_simulations` before with
        some of the simulations it was trained on: they tell where it can be trusted, and whether it is smooth enough.
        """
        if isinstance(other, DensityMethod):
            self._check_noise(other._trained())
            self.density, self.history, self._seen = other._trained(), other.history, other._seen
            self.simulations_used = other.simulations_used
            return self
        density = _checks.instance(other, "other", Density, "nsmbayes.NLE(prior) or a surrogates.Density")
        theta, x = self._all_simulations()
        self._check_noise(density)
        self._check_density(density, theta, x)
        warn_of_unseen_parameters(draw_prior(self.support, 1000), theta, self.parameter_names)
        self.density, self.history = in_double(density), None
        self._seen = np.stack([x.min(axis=0), x.max(axis=0)])
        return self

    def network_key(self) -> tuple[Any, ...]:
        """What its surrogate is but for the simulations and the seed: methods with the same key can share one."""
        shape = (self.components, self.floor, self.ceiling, self.hidden, self.ensemble)
        return ("density", self.surrogate, self.gaussian_flow, self.lattice, self.scaling, shape)

    def _check_noise(self, density: Density) -> None:
        """Refuse a density that does not know the method's noise levels."""

    def _check_density(self, density: Density, theta: np.ndarray, x: np.ndarray) -> None:
        """Refuse a density that the method's loss cannot use."""

    def _augment(self) -> Augment | None:
        """What is done to simulations before the network sees them."""
        return None

    def _initial(self, key: PRNGKeyArray, scale_x: Standardiser, scale_theta: Standardiser) -> Density:
        if self.surrogate == "maf":
            from nsmbayes.surrogates.maf import init_masked_autoregressive_flow

            return init_masked_autoregressive_flow(
                key,
                scale_x,
                scale_theta,
                hidden=self._widths(len(scale_x.scale))[0],
                squash=not self.gaussian_flow,
                allow_one_dimension=self.gaussian_flow,
            )
        return init_mixture_density_network(
            key,
            scale_x,
            scale_theta,
            components=self.components,
            hidden=self._widths(len(scale_x.scale)),
            floor=self.floor,
            ceiling=self.ceiling,
            ensemble=self.ensemble,
        )

    @property
    def d_x(self) -> int:
        """Width of an observation."""
        self._trained()
        return self._seen.shape[1]

    def _trained(self) -> Any:
        if self.density is None:
            raise NotTrainedError("This method is not trained yet: call append_simulations(theta, x), then train().")
        return self.density

    def _observations(self, x: Any) -> Float[np.ndarray, "n d_x"]:
        x = _checks.matrix(x, "x", width=self.d_x, width_is="columns, like the simulations")
        outside = np.flatnonzero(((x < self._seen[0]) | (x > self._seen[1])).any(axis=1))
        if outside.size:
            warnings.warn(
                f"{outside.size} of {len(x)} observations lie outside the range of the simulations (rows "
                f"{_checks.shown(outside)}): the surrogate extrapolates there.",
                stacklevel=3,
            )
        return x

    def _draw(self, loss: DataLoss, beta: float, *, seed: int) -> tuple[Target, Draws]:
        """Draws from the generalised posterior, chains started from the best of many prior draws."""
        with jax.enable_x64(True):
            target = Target(self.support, loss, jnp.asarray(beta))
            key_start, key = jax.random.split(seed_key(seed))
            candidates = np.asarray(self.support.sample(key_start, self.chains * _CANDIDATES))
        if self.sampler == "adaptive":
            for attempt in range(_ATTEMPTS):
                options = {"beta": beta, "chains": self.chains, "draws": self.draws}
                attempt_key = jax.random.fold_in(key, attempt)
                try:
                    result = sample_independence(log_prior, total_loss, candidates, target, **options, key=attempt_key)
                    if self.chains * self.draws >= _JUDGED:
                        require_converged(result, max_r_hat=MAX_R_HAT, min_ess=MIN_ESS)
                    return target, result
                except ConvergenceError:
                    pass  # a chain held fast in a tail that the mixture has missed; or it does not follow at all
        best = starting_points(target, candidates, self.chains)
        options = {"warmup": self.warmup, "draws": self.draws, "key": key}
        if self.sampler == "slice":
            return target, sample_slice(log_density, best, target, **options)
        start = around_modes(target, best, np.random.default_rng(seed))
        result = sample_nuts(log_density, start.positions, target, scales=start.factors, **options)
        if self.sampler == "adaptive":
            result = result._replace(note="Sampled by NUTS: the adaptive sampler did not converge.")
        return target, result

    def _posterior(
        self,
        x: Float[np.ndarray, "n d_x"],
        trust: tuple[Weight, LocationScatter],
        target: Target,
        result: Draws,
        *,
        calibration: Calibration | None = None,
    ) -> GeneralisedPosterior:
        posterior = GeneralisedPosterior(
            (self.name, self.label),
            target,
            result,
            x,
            trust,
            parameter_names=self.parameter_names,
            calibration=calibration,
        )
        if not posterior.converged:
            warnings.warn(
                f"The chains of the {self.label} posterior have not converged (R-hat {result.r_hat.max():.2f}, ESS "
                f"{result.ess.min():.0f}): it may have several modes, see `modes()`. Raise `warmup`, "
                "`draws` or `chains`.",
                stacklevel=3,
            )
        return posterior

    def _options(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON can hold them."""
        names = (
            "surrogate",
            "components",
            "floor",
            "ceiling",
            "hidden",
            "ensemble",
            "lattice",
            "scaling",
            "sampler",
            "chains",
            "warmup",
            "draws",
        )
        return {name: getattr(self, name) for name in names} | {"parameter_names": self.parameter_names}

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the trained method as a folder (JSON and safetensors). Simulations are not saved."""
        density = self._trained()
        if not isinstance(self.prior, GaussianPrior):
            raise InputError(
                f"`prior` is a {type(self.prior).__name__}: only methods with a GaussianPrior can be saved. Keep your "
                "code that builds the prior, and train with the same seed."
            )
        arrays = model_arrays(density)
        if _shapes(arrays) != _shapes(model_arrays(self._blank(self.d_x))):
            raise InputError(
                "The surrogate was adopted from elsewhere and cannot be saved here. Save it where it was trained, and "
                "adopt it again."
            )
        header = {"method": self.name, "gaussian_flow": self.gaussian_flow, "options": self._options()}
        arrays |= {"prior.mean": self.prior.mean, "prior.covariance": self.prior.covariance, "seen": self._seen}
        return write_model(path, header, arrays, overwrite=overwrite)

    @classmethod
    def from_saved(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild a method from what `save` wrote."""
        method = cls(
            GaussianPrior(arrays["prior.mean"], arrays["prior.covariance"]), **cls._read_options(header["options"])
        )
        method.gaussian_flow = bool(header["gaussian_flow"])
        method.density = fill_model(method._blank(arrays["seen"].shape[1]), arrays)
        method._seen = arrays["seen"]
        return method

    def _blank(self, d_x: int) -> Density:
        """The surrogate that training would start from, in other units."""
        scales = [Standardiser(jnp.zeros(d), jnp.ones(d), asinh=False) for d in (d_x, self.support.dim)]
        return in_double(self._initial(jax.random.key(0), *scales))

    @classmethod
    def _read_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        return options | {name: options[name] and tuple(options[name]) for name in ("hidden", "parameter_names")}
