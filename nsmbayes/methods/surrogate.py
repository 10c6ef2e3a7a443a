"""Base class of methods with a surrogate q(x | theta): simulations in memory or on disk, checks, save and load."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.caller import warn_user
from nsmbayes._internal.columns import Names, check_names
from nsmbayes._internal.random import dequantised
from nsmbayes._internal.text import listed
from nsmbayes.calibration import SurrogateTest
from nsmbayes.errors import InputError, NotTrainedError
from nsmbayes.losses.held_out import HeldOut
from nsmbayes.methods.base import TrainedMethod
from nsmbayes.methods.prior_on_disk import prior_to_save, saved_prior
from nsmbayes.methods.stored import MOST_IN_MEMORY, LearningData, StoredSimulations
from nsmbayes.priors import GaussianPrior
from nsmbayes.serialisation import decode, encode, require_array, write_model
from nsmbayes.simulators.campaigns import Campaign, require_valid

FEWEST_HELD_OUT = 20
"""Minimum number of held-out simulations for a check of the surrogate."""
_MOST_TESTED = 20_000  # maximum number of held-out simulations in a test that serves all data sets
_SMALLEST_SCALE = 1e-100  # the square of a smaller scale would underflow
_UNSEEN = 0.05  # warn if a larger fraction of the prior is outside the range of the simulations


class SurrogateMethod(TrainedMethod):
    """A method whose network is a surrogate q(x | theta) of single observations. It can be saved."""

    def __init__(self, prior: Any, dim: int, parameter_names: Names, grid_steps: Any, x_names: Names):
        super().__init__(prior, dim, parameter_names)
        self.x_names = None if x_names is None else check_names(x_names, "x_names")
        self.grid_steps = None if grid_steps is None else tuple(_steps(grid_steps).tolist())
        self._network: Any = None
        self._campaigns: list[Campaign] = []
        self._failed = 0  # rows of campaigns that were dropped
        self._held_out: HeldOut | None = None  # simulations that the network was not trained on
        self._test: SurrogateTest | None = None

    def append_simulations(
        self, theta: Any, x: Any = None, *, drop_failures: bool = False, stream: bool | None = None
    ) -> Self:
        """Add simulations: parameters (m, d_theta) and simulator outputs (m, d_x), row by row; or a campaign.

        A campaign is passed alone, e.g. "campaign.zarr" of `nsmbayes.simulate`. If it has failed rows, `drop_failures`
        must be set; every posterior then reports the fraction. With `stream` the campaign is read in blocks in every
        epoch of training; this is the default if theta and x have more than 20 million numbers.
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
        """All simulations appended so far, with dequantised x; for streamed campaigns a sample, and a reader of all."""
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

    def refine(self, x: Any, simulator: Any, **options: Any) -> Self:
        """Not available for this method: raises `InputError`. See `NSMBayes` for methods that can be refined."""
        del x, simulator, options
        raise InputError(
            f"{self.label} cannot be refined: its error comes from a family that is linear in theta, and more "
            "simulations do not make it smaller. Take NSMBayes or NSMBayesAmortised."
        )

    def _hold(self, held_out: HeldOut | None) -> None:
        """Store held-out simulations, which the network was not trained on."""
        self._held_out, self._test = held_out, None

    def surrogate_test(self) -> SurrogateTest | None:
        """Test of the surrogate on held-out simulations, computed on first use.

        None if there are too few of them (e.g. with an external network), or if the loss has no gradients there.
        """
        held_out = self._held_out
        if self._test is None and held_out is not None and len(held_out.theta) >= FEWEST_HELD_OUT:
            some = HeldOut(*(each[:: -(-len(each) // _MOST_TESTED)] for each in held_out))
            gradients = self._held_out_gradients(some)
            if gradients is not None:
                finite = np.isfinite(gradients).all(axis=1)
                self._test = SurrogateTest(some.theta[finite], gradients[finite])
        return self._test

    def _held_out_gradients(self, held_out: HeldOut) -> Float[np.ndarray, "m d_theta"] | None:
        """Gradient of the loss of each simulation at its own parameters; None if it cannot be computed."""
        del held_out
        return None

    def _same_columns(self, others: Names) -> Names:
        """Return the column names after adopting a network trained on columns `others`; raise if they differ."""
        if None not in (self.x_names, others) and self.x_names != others:
            raise InputError(
                f"`other` was trained on the columns {listed(others or ())}, but `x_names` of this method are "
                f"{listed(self.x_names or ())}. Leave `x_names` out, or train again."
            )
        return others if self.x_names is None else self.x_names

    @property
    @abstractmethod
    def d_x(self) -> int:
        """Number of columns of x."""

    @abstractmethod
    def network_key(self) -> tuple[Any, ...]:
        """Key of the options that determine the network; methods with the same key can share a network."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments, except the prior."""

    @abstractmethod
    def _saved_arrays(self) -> dict[str, np.ndarray]:
        """Return the trained state as named arrays."""

    @abstractmethod
    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore the trained state from the arrays of `_saved_arrays`."""

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the trained method as a folder (JSON and safetensors). Simulations are not saved.

        A prior that cannot be saved (e.g. your own numpyro distribution) is left out: pass it again at load time,
        `nsmbayes.load(path, prior=prior)`.
        """
        prior, of_prior = prior_to_save(self.prior)
        arrays = self._saved_arrays() | of_prior
        if self.dropped:
            arrays["simulations.dropped"] = np.asarray(self.dropped)
        if self._held_out is not None:
            arrays |= {f"held_out.{name}": array for name, array in self._held_out._asdict().items()}
        config = {name: encode(value) for name, value in self.config().items()}
        header = {"method": self.name, "config": config, "interrupted": self.interrupted, "prior": prior}
        return write_model(path, header, arrays, overwrite=overwrite)

    @classmethod
    def from_saved(cls, header: dict[str, Any], arrays: dict[str, np.ndarray], *, prior: Any = None) -> Self:
        """Rebuild a method from the files of `save`; `prior` replaces the saved prior."""
        config: dict[str, Any] = header["config"]
        options = {name: decode(value) for name, value in config.items()}
        build: Any = cls  # every method of this kind is built from a prior and its options
        known = build(GaussianPrior([0.0], [1.0])).config()
        if unknown := sorted(set(options) - set(known)):
            raise InputError(f"The saved model has an option {unknown[0]!r:.60} that this version does not know.")
        if missing := sorted(set(known) - set(options)):
            raise InputError(f"The saved model lacks the option {missing[0]!r}: it was not written by nsmbayes.")
        method = build(saved_prior(header.get("prior"), arrays, prior), **options)
        method._restore(arrays)
        method._check_columns()
        method.interrupted = checks.flag(header.get("interrupted", False), "interrupted")
        if "simulations.dropped" in arrays:
            method.dropped = checks.fraction(float(require_array(arrays, "simulations.dropped", ())), "dropped")
        if "held_out.theta" in arrays:
            theta, x = (require_array(arrays, f"held_out.{name}") for name in HeldOut._fields)
            if theta.shape != (len(x), method.dim) or x.shape != (len(theta), method.d_x):
                raise InputError("The saved simulations that were held out do not fit the model. Train it again.")
            method._hold(HeldOut(theta, x))
        return method

    def _check_columns(self) -> None:
        """Raise `InputError` if names, steps or scales do not fit the columns of the network."""
        for name, entries in (("x_names", self.x_names), ("grid_steps", self.grid_steps)):
            if entries is not None and len(entries) != self.d_x:
                raise InputError(f"`{name}` must have one entry per column of x, {self.d_x}; got {len(entries)}.")
        for part in ("scale_x", "scale_theta"):
            if not (np.asarray(getattr(self.network, part).scale) > _SMALLEST_SCALE).all():
                raise InputError(
                    f"The saved scales in {part!r} must be above {_SMALLEST_SCALE:g}. Train the model again."
                )

    def _dequantise(self, x: Float[np.ndarray, "m d_x"], *stream: int) -> Float[np.ndarray, "m d_x"]:
        """Return `x` with uniform noise of one grid step added, so that it has a density."""
        if self.grid_steps is None:
            return x
        if len(self.grid_steps) != x.shape[1]:
            raise InputError(
                f"`grid_steps` must have {x.shape[1]} step{'s' * (x.shape[1] > 1)}, one per column of x (0 for a "
                f"continuous one); got {len(self.grid_steps)}."
            )
        return dequantised(x, self.grid_steps, *stream)

    def _warn_of_whole_numbers(self, x: Float[np.ndarray, "m d_x"]) -> None:
        """Warn of columns that look like counts but have no `grid_steps`: counts have no density."""
        whole = (x == np.rint(x)).all(axis=0) & (np.ptp(x, axis=0) > 1)
        if self.grid_steps is None and whole.any():
            steps = tuple(1.0 if each else 0.0 for each in whole)
            warn_user(
                f"Column {checks.shown(np.flatnonzero(whole))} of the simulations holds whole numbers only. Counts "
                "have no density, and scores of a surrogate mean little for them: build the method with "
                f"grid_steps={steps}, or simulate log(1 + count) if counts range over orders of magnitude.",
            )

    def _warn_of_unseen(self, draws: Float[np.ndarray, "k d_theta"], theta: Float[np.ndarray, "m d_theta"]) -> None:
        """Warn if many `draws` of the prior are outside the range of the simulated `theta`."""
        outside = ((draws < theta.min(axis=0)) | (draws > theta.max(axis=0))).mean(axis=0)
        worst = int(outside.argmax())
        if outside[worst] > _UNSEEN:
            warn_user(
                f"{outside[worst]:.0%} of the prior lies where {self.parameter_names[worst]} was never simulated (the "
                f"simulations reach from {theta[:, worst].min():.4g} to {theta[:, worst].max():.4g}): the surrogate "
                "extrapolates there. Simulate from the prior, or from something wider.",
            )


def require_trained(network: Any) -> Any:
    """Return `network`; raise `NotTrainedError` if it is None."""
    if network is None:
        raise NotTrainedError("This method is not trained yet: call append_simulations(theta, x), then train().")
    return network


def _steps(grid_steps: Any) -> Float[np.ndarray, " d_x"]:
    steps = checks.vector(grid_steps, "grid_steps")
    if (steps < 0).any():
        raise InputError(f"`grid_steps` must hold steps of at least 0; got {steps.tolist()}.")
    return steps
