"""What methods share: a prior, names, the simulations they were given, and how they are saved."""

import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.columns import Names, check_names, column_names, named_matrix, warn_unnamed
from nsmbayes._internal.precision import Sheltered
from nsmbayes._internal.random import dequantised
from nsmbayes._internal.text import listed
from nsmbayes.diagnostics import Reach, judge, reach
from nsmbayes.errors import BudgetError, InputError, NotTrainedError
from nsmbayes.methods.stored import MOST_IN_MEMORY, StoredSimulations, Streamed
from nsmbayes.posteriors import Posterior, Provenance
from nsmbayes.priors import GaussianPrior
from nsmbayes.robustness import certify
from nsmbayes.serialisation import decode, encode, require_array, write_model
from nsmbayes.simulators.campaigns import Campaign, require_valid
from nsmbayes.surrogates import Scalers
from nsmbayes.training import Stopped, TrainingHistory, TrainingSettings

_UNSEEN = 0.05  # fraction of the prior outside the range of the simulations from which on a user should know


class Method(Sheltered, ABC):
    """A way from observations to a posterior."""

    name: str  # on the command line and in saved models
    label: str  # for readers
    amortised: str  # "fully", "partially" or "no"
    history: TrainingHistory | None = None
    x_names: Names = None
    """The columns of x by name, where they have names: given, or those of the simulations."""
    interrupted: bool = False
    """Whether the training of its network was ended by Ctrl-C; posteriors then say so."""

    def __init__(self, prior: Any, dim: int, parameter_names: tuple[str, ...] | None, budget: int | None = None):
        self.prior = prior
        self.simulations_used = 0
        self.dropped = 0.0
        """The fraction of the simulations that failed and were dropped."""
        self.budget = None if budget is None else checks.integer(budget, "budget", at_least=1)
        """The most simulator calls the method may use, given to it or made by it; None for no limit."""
        self._has_names = parameter_names is not None
        if parameter_names is None:
            parameter_names = tuple(f"theta_{i + 1}" for i in range(dim))
        self.parameter_names = check_names(parameter_names, "parameter_names", dim)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.parameter_names)

    @abstractmethod
    def train(self, seed: int = 0, *, progress: bool = True) -> Self:
        """Do what can be done before the observations are known."""

    @abstractmethod
    def build_posterior(self, x: Any, *, seed: int = 0) -> Posterior:
        """The posterior given observations (n, d_x)."""

    def check(self, x: Any) -> Reach:
        """How far observations lie from all simulations, before anything is inferred from them.

        `.verdict` says it in a few words, `.explain()` in a sentence or two; there are numbers for each row and column.
        """
        simulated, bounds = self._reference()
        x = named_matrix(x, "x", self.x_names, width=simulated.shape[1], width_is="columns, like the simulations")
        return reach(x, simulated, self.x_names, bounds=bounds)

    def _reference(self) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, "2 d_x"] | None]:
        """Simulations, and None; or draws of the surrogate over the prior, and the range of the simulations."""
        raise InputError(
            f"{self.label} has no simulations to compare with. Simulate from the prior, and pass them to "
            "nsmbayes.diagnostics.reach(x, simulated)."
        )

    def _provenance(self) -> Provenance:
        about = (self.x_names, self.interrupted, self.dropped)
        return Provenance(self.name, self.label, self.parameter_names, certify, *about, judge)

    def _record(self, history: TrainingHistory) -> None:
        self.history, self.interrupted = history, history.stopped == Stopped.INTERRUPTED

    def _charge(self, calls: int) -> None:
        """Count calls of the simulator, before they are made; raise `BudgetError` if they are too many."""
        used = self.simulations_used + calls
        if self.budget is not None and used > self.budget:
            raise BudgetError(
                f"{calls:,} more simulations would make {used:,}, and the budget is {self.budget:,}. Raise `budget`, "
                "or ask for fewer."
            )
        self.simulations_used = used


class TrainedMethod(Method):
    """A method that learns from simulations: `append_simulations`, then `train`, then `build_posterior` at will."""

    def __init__(self, prior: Any, dim: int, parameter_names: tuple[str, ...] | None, budget: int | None = None):
        super().__init__(prior, dim, parameter_names, budget)
        self._simulations: list[tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m ..."]]] = []

    def append_simulations(self, theta: Any, x: Any) -> Self:
        """Add simulations: parameters (m, d_theta) and what the simulator made of them (m, d_x), row by row.

        The column names of a DataFrame `x` are remembered: observations are later brought into this order by name. A
        DataFrame `theta` is brought into the order of `parameter_names`, if they were given.
        """
        known = self.parameter_names if self._has_names and column_names(theta) is not None else None
        like = "columns, one per parameter of the prior"
        theta = named_matrix(theta, "theta", known, width=self.dim, width_is=like, of="`parameter_names`")
        names = self._names_with(column_names(x))
        width = self._simulations[0][1].shape[1] if self._simulations else None
        if width is None and names is not None:
            width = len(names)
        x = named_matrix(x, "x", names, width=width, width_is="columns, like the simulations before")
        if len(theta) != len(x):
            raise InputError(
                f"`theta` and `x` must have the same number of rows; got {len(theta)} and {len(x)}. Row i of x is the "
                "simulation at row i of theta."
            )
        self._charge(len(x))
        self._simulations.append((theta, x))
        self.x_names = names
        return self

    def _names_with(self, found: Names) -> Names:
        """The names of the columns, now that some were found where there were perhaps none."""
        if self.x_names is not None or found is None:
            return self.x_names
        names = check_names(found, "x_names")
        if self._simulations:
            warn_unnamed("x of the simulations before", names, "those that follow")
        return names

    def _reference(self) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, "2 d_x"] | None]:
        x = self._all_simulations()[1]
        return x.reshape(-1, x.shape[-1]), None

    def _all_simulations(self) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m ..."]]:
        if not self._simulations:
            raise InputError("There are no simulations to train on. Call append_simulations(theta, x) first.")
        theta, x = zip(*self._simulations, strict=True)
        return np.concatenate(theta), np.concatenate(x)


class SurrogateMethod(TrainedMethod):
    """A method whose network is a surrogate q(x | theta) of single observations. It can be saved."""

    def __init__(self, prior: Any, dim: int, parameter_names: Names, grid_steps: Any, x_names: Names):
        super().__init__(prior, dim, parameter_names)
        self.x_names = None if x_names is None else check_names(x_names, "x_names")
        self.grid_steps = None if grid_steps is None else tuple(_steps(grid_steps).tolist())
        self._network: Any = None
        self._campaigns: list[Campaign] = []
        self._failed = 0  # rows of campaigns that were dropped

    def append_simulations(
        self, theta: Any, x: Any = None, *, drop_failures: bool = False, stream: bool | None = None
    ) -> Self:
        """Add simulations: parameters (m, d_theta) and what the simulator made of them (m, d_x), row by row.

        Or a campaign alone, e.g. "campaign.zarr" of `nsmbayes.simulate`. One with failed rows is refused unless
        `drop_failures`; every posterior then tells the fraction. With `stream` it is read in blocks in every epoch of
        training; by default if theta and x have more than 20 million numbers.
        """
        if x is not None or not isinstance(theta, str | Path | Campaign):
            return super().append_simulations(theta, x)
        campaign = theta if isinstance(theta, Campaign) else Campaign(theta)
        failed = require_valid(campaign, drop_failures=drop_failures)
        if campaign.d_theta != self.dim:
            raise InputError(f"`theta`: {campaign.path} has {campaign.d_theta} parameters; the prior has {self.dim}.")
        if stream is None:
            stream = len(campaign) * (campaign.d_theta + campaign.d_x) > MOST_IN_MEMORY
        if checks.flag(stream, "stream"):
            self._charge(campaign.progress().done - failed)
            self._campaigns.append(campaign)
        else:
            super().append_simulations(*campaign.arrays(drop_failures=drop_failures))
        self._failed += failed
        self.dropped = self._failed / (self._failed + self.simulations_used)
        return self

    def _data(self, seed: int) -> "LearningData":
        """All simulations appended so far, with dequantised x, in memory; or some of them, and how to read all."""
        if not self._campaigns:
            theta, x = self._all_simulations()
            return LearningData(theta, self._dequantise(x, seed, 0), theta, None)
        if self._simulations:
            raise InputError("Campaigns that are streamed cannot be mixed with arrays: simulate those into a campaign.")
        stored = StoredSimulations(self._campaigns, self._dequantise, seed)
        return LearningData(*stored.sample, stored.theta_range, stored)

    @property
    def network(self) -> Any:
        """The trained surrogate."""
        return require_trained(self._network)

    def _same_columns(self, others: Names) -> Names:
        """The names of the columns, if those of an adopted network can be the same."""
        if None not in (self.x_names, others) and self.x_names != others:
            raise InputError(
                f"`other` was trained on the columns {listed(others or ())}, but `x_names` of this method are "
                f"{listed(self.x_names or ())}. Leave `x_names` out, or train again."
            )
        return others if self.x_names is None else self.x_names

    @property
    @abstractmethod
    def d_x(self) -> int:
        """Width of an observation."""

    @abstractmethod
    def network_key(self) -> tuple[Any, ...]:
        """What its network is but for the simulations and the seed: methods with the same key can share one."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments beside the prior."""

    @abstractmethod
    def _saved_arrays(self) -> dict[str, np.ndarray]:
        """What it has learnt."""

    @abstractmethod
    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take what `_saved_arrays` returned."""

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the trained method as a folder (JSON and safetensors). Simulations are not saved."""
        arrays = self._saved_arrays()
        if not isinstance(self.prior, GaussianPrior):
            raise InputError(
                f"`prior` is a {type(self.prior).__name__}: only methods with a GaussianPrior can be saved. Keep your "
                "code that builds the prior, and train with the same seed."
            )
        arrays |= {"prior.mean": self.prior.mean, "prior.covariance": self.prior.covariance}
        if self.dropped:
            arrays["simulations.dropped"] = np.asarray(self.dropped)
        config = {name: encode(value) for name, value in self.config().items()}
        header = {"method": self.name, "config": config, "interrupted": self.interrupted}
        return write_model(path, header, arrays, overwrite=overwrite)

    @classmethod
    def from_saved(cls, config: dict[str, Any], arrays: dict[str, np.ndarray], *, interrupted: bool = False) -> Self:
        """Rebuild a method from what `save` wrote."""
        options = {name: decode(value) for name, value in config.items()}
        build: Any = cls  # every method of this kind is built from a prior and its options
        known = build(GaussianPrior([0.0], [1.0])).config()
        if unknown := sorted(set(options) - set(known)):
            raise InputError(f"The saved model has an option {unknown[0]!r:.60} that this version does not know.")
        if missing := sorted(set(known) - set(options)):
            raise InputError(f"The saved model lacks the option {missing[0]!r}: it was not written by nsmbayes.")
        mean = require_array(arrays, "prior.mean", (None,))
        prior = GaussianPrior(mean, require_array(arrays, "prior.covariance", (len(mean), len(mean))))
        method = build(prior, **options)
        method._restore(arrays)
        method._check_columns()
        method.interrupted = checks.flag(interrupted, "interrupted")
        if "simulations.dropped" in arrays:
            method.dropped = checks.fraction(float(require_array(arrays, "simulations.dropped", ())), "dropped")
        return method

    def _check_columns(self) -> None:
        """Refuse names and scales that do not fit the columns of the network."""
        for name, entries in (("x_names", self.x_names), ("grid_steps", self.grid_steps)):
            if entries is not None and len(entries) != self.d_x:
                raise InputError(f"`{name}` must have one entry per column of x, {self.d_x}; got {len(entries)}.")
        for part in ("scale_x", "scale_theta"):
            if not (np.asarray(getattr(self.network, part).scale) > 0).all():
                raise InputError(f"The saved scales in {part!r} must be positive. Train the model again.")

    def _dequantise(self, x: Float[np.ndarray, "m d_x"], *stream: int) -> Float[np.ndarray, "m d_x"]:
        """`x` with uniform noise of one grid step, so that it has a density."""
        if self.grid_steps is None:
            return x
        if len(self.grid_steps) != x.shape[1]:
            raise InputError(
                f"`grid_steps` must have {x.shape[1]} step{'s' * (x.shape[1] > 1)}, one per column of x (0 for a "
                f"continuous one); got {len(self.grid_steps)}."
            )
        return dequantised(x, self.grid_steps, *stream)

    def _warn_of_whole_numbers(self, x: Float[np.ndarray, "m d_x"]) -> None:
        """Warn of columns that look like counts and were not declared: they have no density."""
        whole = (x == np.rint(x)).all(axis=0) & (np.ptp(x, axis=0) > 1)
        if self.grid_steps is None and whole.any():
            steps = tuple(1.0 if each else 0.0 for each in whole)
            warnings.warn(
                f"Column {checks.shown(np.flatnonzero(whole))} of the simulations holds whole numbers only. Counts "
                "have no density, and scores of a surrogate mean little for them: build the method with "
                f"grid_steps={steps}, or simulate log(1 + count) if counts range over orders of magnitude.",
                stacklevel=3,
            )

    def _warn_of_unseen(self, draws: Float[np.ndarray, "k d_theta"], theta: Float[np.ndarray, "m d_theta"]) -> None:
        """Warn if the prior reaches where nothing was simulated: `draws` of the prior outside the range of `theta`."""
        outside = ((draws < theta.min(axis=0)) | (draws > theta.max(axis=0))).mean(axis=0)
        worst = int(outside.argmax())
        if outside[worst] > _UNSEEN:
            warnings.warn(
                f"{outside[worst]:.0%} of the prior lies where {self.parameter_names[worst]} was never simulated (the "
                f"simulations reach from {theta[:, worst].min():.4g} to {theta[:, worst].max():.4g}): the surrogate "
                "extrapolates there. Simulate from the prior, or from something wider.",
                stacklevel=5,
            )


class LearningData(NamedTuple):
    """What a network is trained on: all simulations, or a sample of those that are `stored`."""

    theta: Float[np.ndarray, "m d_theta"]
    x: Float[np.ndarray, "m d_x"]
    theta_range: Float[np.ndarray, "k d_theta"]
    """Rows that reach as far as all simulations do."""
    stored: StoredSimulations | None

    @property
    def x_range(self) -> Float[np.ndarray, "k d_x"]:
        """Rows that reach as far as all simulations do."""
        return self.x if self.stored is None else self.stored.x_range

    def stream(self, scalers: Scalers, settings: TrainingSettings) -> Streamed | None:
        """All simulations as networks see them, if they have to be read."""
        return None if self.stored is None else Streamed(self.stored, scalers, settings.validation_fraction)


def require_trained(network: Any) -> Any:
    """`network`, if there is one."""
    if network is None:
        raise NotTrainedError("This method is not trained yet: call append_simulations(theta, x), then train().")
    return network


def _steps(grid_steps: Any) -> Float[np.ndarray, " d_x"]:
    steps = checks.vector(grid_steps, "grid_steps")
    if (steps < 0).any():
        raise InputError(f"`grid_steps` must hold steps of at least 0; got {steps.tolist()}.")
    return steps
