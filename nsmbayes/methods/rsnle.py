"""RSNLE: robust sequential neural likelihood estimation (Kelly et al. 2024)."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision, in_double
from nsmbayes._seeds import random_key
from nsmbayes.methods.base import as_settings
from nsmbayes.methods.simulating import SimulatingMethod
from nsmbayes.posteriors.drawn import DrawnPosterior, constrain
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers import Draws, sample_nuts
from nsmbayes.simulators import sets_at
from nsmbayes.summaries import quantile_summaries
from nsmbayes.surrogates import CouplingFlow, Standardiser, fit_standardiser, init_coupling_flow
from nsmbayes.training import TrainingHistory, TrainingSettings, fit

Summary = Callable[[Float[np.ndarray, "m n d_x"]], Float[np.ndarray, "m d_s"]]


class Round(NamedTuple):
    """Everything the density of one round depends on."""

    support: UnconstrainedPrior
    flow: CouplingFlow
    observed: Float[Array, " d_s"]
    scale: Float[Array, " d_s"]


class AdjustedPosterior(DrawnPosterior):
    """A posterior over theta that was sampled together with adjustments of the observed statistics."""

    adjustments: Float[np.ndarray, "chains draws d_s"]
    """Draws of Gamma, in standard deviations of the simulated statistics."""


class RSNLE(SimulatingMethod):
    """A likelihood of summary statistics, learnt in rounds, that may shift each observed statistic at a price.

    The posterior is that of theta and the shift Gamma, q(s - Gamma | theta) prior(theta) Laplace(Gamma; 0, |0.3 s|),
    with s the observed statistics in standard deviations of the simulated ones. A statistic that no theta can produce
    is shifted away. One that outliers have moved to where another theta would put it is not.

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task.
        summary: statistics of data sets, (m, n, d_x) to (m, d_s); four of the quantiles of each column by default.
        rounds: how often data sets are simulated, first at draws of the prior, then of the latest posterior.
        sets: data sets a round.
        adjustment: scale of the Laplace prior, relative to the observed statistics; 0 for none, which is sequential
            neural likelihood estimation.
        layers: coupling layers of the flow, at least two: each leaves one half of the statistics as it is.
        hidden: width of their networks.
        chains: number of chains.
        warmup: steps of each chain that are spent on tuning.
        draws: draws kept from each chain.
        budget: the most simulations it may make.
        parameter_names: names for tables and plots.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.RSNLE(task.prior, task, rounds=2, sets=500).train(seed=0)
        >>> method.amortised, method.planned_simulations(100)  # what build_posterior(x) will simulate
        ('no', 100000)
    """

    name, label = "rsnle", "RSNLE"
    training = TrainingSettings(
        learning_rate=1e-3, weight_decay=0.0, batch_size=64, validation_fraction=0.1, patience=20, max_epochs=500
    )

    def __init__(
        self,
        prior: Any,
        simulator: Any,
        *,
        summary: Summary = quantile_summaries,
        rounds: int = 2,
        sets: int = 500,
        adjustment: float = 0.3,
        layers: int = 5,
        hidden: int = 50,
        chains: int = 4,
        warmup: int = 300,
        draws: int = 250,
        budget: int | None = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        super().__init__(prior, simulator, budget=budget, parameter_names=parameter_names)
        if not callable(summary):
            raise InputError(f"`summary` must be a function of data sets (m, n, d_x); got {type(summary).__name__}.")
        self.summary = summary
        self.rounds = _checks.integer(rounds, "rounds", at_least=1)
        self.sets = _checks.integer(sets, "sets", at_least=10)
        self.adjustment = _checks.real(adjustment, "adjustment")
        if self.adjustment < 0:
            raise InputError(f"`adjustment` must not be negative; got {self.adjustment}.")
        self.layers = _checks.integer(layers, "layers", at_least=2)
        self.hidden = _checks.integer(hidden, "hidden", at_least=1)
        self.chains = _checks.integer(chains, "chains", at_least=2)
        self.warmup = _checks.integer(warmup, "warmup", at_least=10)
        self.draws = _checks.integer(draws, "draws", at_least=10)
        self.histories: list[TrainingHistory] = []
        self._how: tuple[int, TrainingSettings, bool] = 0, self.training, True

    def planned_simulations(self, n: int) -> int:
        """How often the simulator will be called for one posterior of n observations."""
        return self.rounds * self.sets * n

    @classmethod
    def within(cls, budget: int, n: int) -> dict[str, Any]:
        """Options with which one posterior of n observations fits into a budget: two rounds of equal size."""
        return {"rounds": 2, "sets": budget // (2 * n)}

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Keep how to train: the rounds need the observations."""
        super().train(seed, progress=progress)
        self._how = seed, as_settings(settings, self.training), progress
        return self

    def build_posterior(self, x: Any, *, seed: int = 0) -> AdjustedPosterior:
        """Simulate, train and sample in rounds that close in on the observations (n, d_x)."""
        x, key = self._observations(x), random_key(seed)
        observed = self._summarise(x[None], "x")[0]
        self._spend(self.planned_simulations(len(x)))
        self.histories = []
        key, key_prior, key_init = jax.random.split(key, 3)
        untrained = self._untrained(key_init, len(observed))
        u = self._prior_draws(key_prior, self.sets)
        seen_u, seen_s = np.empty((0, u.shape[1])), np.empty((0, len(observed)))
        target = result = None
        for round_key in jax.random.split(key, self.rounds):
            key_simulate, key_fit, key_draw = jax.random.split(round_key, 3)
            sets = sets_at(self.simulator, constrain(self.support, u[None])[0], len(x), key_simulate)
            seen_u = np.concatenate([seen_u, u])
            seen_s = np.concatenate([seen_s, self._summarise(sets, "the simulated data")])
            target = self._fit(untrained, seen_u, seen_s, observed, key_fit)
            result = self._sample(target, u, key_draw)
            u = result.flat[:: max(1, len(result.flat) // self.sets)][: self.sets, : self.support.dim]
        assert target is not None  # there is at least one round
        assert result is not None
        return self._posterior(x, result, np.asarray(target.scale))

    def _summarise(self, sets: Float[np.ndarray, "m n d_x"], name: str) -> Float[np.ndarray, "m d_s"]:
        summaries = np.asarray(self.summary(sets), float)
        if summaries.ndim != 2 or len(summaries) != len(sets):
            raise InputError(f"`summary` must turn (m, n, d_x) into (m, d_s); got {summaries.shape} for {sets.shape}.")
        bad = np.flatnonzero(~np.isfinite(summaries).all(axis=1))
        if bad.size:
            raise InputError(
                f"`summary` of {name} is not finite for {bad.size} of {len(sets)} data sets. Choose statistics that "
                "always exist."
            )
        return summaries

    @double_precision
    def _prior_draws(self, key: PRNGKeyArray, count: int) -> Float[np.ndarray, "count d"]:
        return np.asarray(self.support.sample(key, count))

    def _fit(self, flow: CouplingFlow, u: np.ndarray, s: np.ndarray, observed: np.ndarray, key: PRNGKeyArray) -> Round:
        """Train the flow on what has been simulated so far; it starts from the same weights in every round."""
        seed, settings, progress = self._how
        scale_s, scale_u = fit_standardiser(s, "zscore", "summary"), fit_standardiser(u, "zscore", "theta")
        flow, history = fit(
            eqx.tree_at(lambda flow: (flow.scale_x, flow.scale_theta), flow, (scale_s, scale_u)),
            _negative_log_prob,
            scale_u.standardise(u),
            scale_s.standardise(s),
            settings=settings,
            key=jax.random.fold_in(key, seed),
            progress=progress,
        )
        self.histories.append(history)
        self.history = history
        z = scale_s.standardise(observed[None])[0]
        return in_double(Round(self.support, flow, jnp.asarray(z), jnp.asarray(self.adjustment * np.abs(z))))

    def _untrained(self, key: PRNGKeyArray, d_s: int) -> CouplingFlow:
        # One for all rounds: a new one would have to be compiled again.
        units = [Standardiser(jnp.zeros(d), jnp.ones(d), asinh=False) for d in (d_s, self.support.dim)]
        return init_coupling_flow(key, *units, layers=self.layers, hidden=self.hidden)

    @double_precision
    def _sample(self, target: Round, candidates: np.ndarray, key: PRNGKeyArray) -> Draws:
        size = len(target.observed) if self.adjustment else 0
        values = np.asarray(jax.vmap(lambda u: log_density(u, target))(jnp.asarray(candidates)))
        best = np.argsort(-np.nan_to_num(values, nan=-np.inf))[: self.chains]
        start = np.hstack([candidates[best], np.zeros((self.chains, size))])
        return sample_nuts(log_density, start, target, warmup=self.warmup, draws=self.draws, key=key)

    def _posterior(self, x: Float[np.ndarray, "n d_x"], result: Draws, scale: np.ndarray) -> AdjustedPosterior:
        d = self.support.dim
        about_theta = result._replace(positions=result.positions[..., :d], r_hat=result.r_hat[:d], ess=result.ess[:d])
        posterior = AdjustedPosterior(
            (self.name, self.label),
            self.support,
            constrain(self.support, about_theta.positions),
            x,
            parameter_names=self.parameter_names,
            result=about_theta,
        )
        posterior.adjustments = result.positions[..., d:] * (scale if self.adjustment else 1.0)
        return posterior


def _negative_log_prob(flow: CouplingFlow, t: Float[Array, " d_theta"], z: Float[Array, " d_s"]) -> Float[Array, ""]:
    return -flow.network_log_prob(t, z)


def log_density(position: Float[Array, " d"], target: Round) -> Float[Array, ""]:
    """Log density of (u, g) up to a constant, with Gamma = scale g; of u alone if there are no adjustments."""
    u, g = jnp.split(position, [target.support.dim])
    z = target.observed - target.scale * g if len(g) else target.observed
    log_likelihood = target.flow.network_log_prob(target.flow.scale_theta(u), z)
    return log_likelihood + target.support.log_density(u) - jnp.abs(g).sum()
