"""Refinement: additional simulations near the robust posterior of a data set."""

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision, in_double
from nsmbayes._internal.random import seed_key
from nsmbayes._internal.waiting import quiet
from nsmbayes.errors import InputError
from nsmbayes.losses.held_out import HeldOut
from nsmbayes.methods.base import TrainedMethod
from nsmbayes.methods.surrogate import SurrogateMethod
from nsmbayes.posteriors import GeneralisedPosterior
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.simulators.campaigns import as_campaign_simulator
from nsmbayes.simulators.given import simulate_at
from nsmbayes.surrogates import Density
from nsmbayes.training import Augment, TrainingSettings, as_settings, fit_density

_WIDTHS = (0.0, 0.5)  # scale of the noise added to draws, in posterior standard deviations


class RefinableMethod(SurrogateMethod):
    """A method whose surrogate can be trained further, on additional simulations near a posterior."""

    support: UnconstrainedPrior

    @property
    @abstractmethod
    def x_range(self) -> Float[np.ndarray, "2 d_x"]:
        """The smallest and the largest simulated value of each column."""

    @abstractmethod
    def build_posterior(self, x: Any, *, seed: int = 0) -> GeneralisedPosterior:
        """Build the posterior given observations (n, d_x)."""

    @abstractmethod
    def default_training(self, d_x: int) -> TrainingSettings:
        """Default training settings of the surrogate."""

    @abstractmethod
    def _augment(self) -> Augment | None:
        """Augmentation of simulations during training, e.g. added noise; None for none."""

    @abstractmethod
    def _learn(self, density: Density, x: Float[np.ndarray, "m d_x"]) -> None:
        """Store a trained surrogate and the range of x."""

    def refine(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Any,
        simulator: Any,
        *,
        simulations: int = 20_000,
        rounds: int = 3,
        seed: int = 0,
        executor: Any = None,
        timeout: float | None = None,
        keep: str | Path | None = None,
        settings: TrainingSettings | None = None,
        progress: bool = True,
    ) -> Self:
        """Improve the surrogate near the robust posterior of `x` with more simulations, and measure its error there.

        In every round, parameters are drawn around the posterior, and each is simulated once. After the first round the
        network is trained further, from its present weights, on all simulations so far. The simulations of later rounds
        are held out: they measure the remaining error of the surrogate, and posteriors in this region are corrected for
        it. A surrogate without this check, such as a flow, is trained after every round. Outliers in `x` do not
        influence the refinement, since they do not move the posterior. The method remains amortised as before. Build
        the posterior again afterwards.

        Args:
            x: the observations, outliers included.
            simulator: as for `nsmbayes.simulate`.
            simulations: total number of simulator calls in all rounds.
            rounds: number of rounds; each starts from a new posterior. With one round, no posterior is corrected.
            seed: for the posteriors, the simulations and the training.
            executor: where to simulate, as for `nsmbayes.simulate`.
            timeout: maximum seconds for a simulator call.
            keep: a folder for the simulations, written after every hundredth of a round. If the refinement is stopped,
                repeat the same call with the method in its original state: it reads them instead of simulating again.
            settings: training settings; by default those of `train`, with half the epochs.
            progress: whether to show progress bars.
        """
        chosen, rounds = as_campaign_simulator(simulator), checks.integer(rounds, "rounds", at_least=1)
        simulations, folder = (
            checks.integer(simulations, "simulations", at_least=100),
            keep if keep is None else Path(keep),
        )
        if self._campaigns:
            raise InputError(
                "Campaigns that are streamed cannot be refined: training again would have to read them and the new "
                "simulations together. Append the campaign with stream=False."
            )
        if not self._simulations:
            self._simulations = [self._kept_simulations()]
        self._check_budget(simulations)
        for number, part in enumerate(np.array_split(np.arange(simulations), rounds)):
            with quiet(not progress):
                posterior = self.build_posterior(x, seed=seed)
            theta = propose_near(posterior, self.support, len(part), seed + number)
            options: dict[str, Any] = {"executor": executor, "timeout": timeout, "progress": progress}
            found = simulate_at(chosen, theta, seed=seed + number, keep=folder, **options)
            known = sum(len(some) for some, _ in self._simulations)
            TrainedMethod.append_simulations(self, theta, found)
            if number == 0 or posterior.surrogate_check is None or self._held_out is None:
                self._train_on(known, seed + number, settings, progress)
            else:
                some = HeldOut(theta, self._dequantise(self._simulations[-1][1], seed + number, 0))
                self._hold(HeldOut(*map(np.concatenate, zip(some, self._held_out, strict=True))))
        return self

    def _kept_simulations(self) -> tuple[np.ndarray, np.ndarray]:
        """The simulations of a loaded method: only the held-out ones are saved with it."""
        if self._held_out is None or self.grid_steps is not None:
            raise InputError(
                "The simulations that the network was trained on are not here, and training on new ones alone would "
                "make it forget the others: call append_simulations(theta, x) with them first."
            )
        return self._held_out.theta, self._held_out.x

    def _train_on(self, known: int, seed: int, settings: TrainingSettings | None, progress: bool) -> None:
        """Continue training from the present weights on all simulations; those after the first `known` are new."""
        data, density = self._data(seed), self.network
        usual = self.default_training(data.x.shape[1])
        usual = replace(usual, learning_rate=usual.learning_rate / 2, max_epochs=-(-usual.max_epochs // 2))
        settings, key = as_settings(settings, usual), seed_key(seed)
        density, history = fit_density(
            density,
            density.scale_theta.standardise(data.theta),
            density.scale_x.standardise(data.x),
            settings=settings,
            key=key,
            augment=self._augment(),
            progress=progress,
        )
        self._record(history)
        self._learn(in_double(density), np.concatenate([data.x, self.x_range]))
        self._hold(data.held_out(None, key, settings, recent=known))


@double_precision
def propose_near(
    posterior: GeneralisedPosterior, prior: UnconstrainedPrior, count: int, seed: int
) -> Float[np.ndarray, "count d_theta"]:
    """Draw parameters around a posterior: its draws, some with noise of half a posterior standard deviation.

    Outliers do not influence them, since they do not move the posterior.
    """
    rng, flat = np.random.default_rng([seed, count]), posterior.result.flat
    covariance = np.atleast_2d(np.cov(flat.T)) + 1e-300 * np.eye(flat.shape[1])
    steps = rng.standard_normal((count, flat.shape[1])) @ np.linalg.cholesky(covariance).T
    width = rng.choice(_WIDTHS, count)
    return constrain_rows(prior, flat[rng.integers(len(flat), size=count)] + width[:, None] * steps)
