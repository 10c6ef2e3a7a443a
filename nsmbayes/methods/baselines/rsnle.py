"""RSNLE: robust sequential neural likelihood estimation (Kelly et al. 2024)."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision, in_double
from nsmbayes._internal.random import random_key
from nsmbayes.errors import InputError
from nsmbayes.methods.baselines.networks import CouplingFlow, init_coupling_flow
from nsmbayes.methods.baselines.plan import TrainingPlan
from nsmbayes.methods.baselines.simulating import SimulatingMethod
from nsmbayes.methods.baselines.summaries import quantile_summaries
from nsmbayes.posteriors import Provenance, SampledPosterior
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import Draws, sample_nuts
from nsmbayes.simulators import sets_at
from nsmbayes.surrogates import Scalers, fit_standardiser
from nsmbayes.training import TrainingHistory, TrainingSettings, as_settings, fit, interrupts_are_final

Summary = Callable[[Float[np.ndarray, "m n d_x"]], Float[np.ndarray, "m d_s"]]


class AdjustedPosterior(SampledPosterior):
    """A posterior over theta, sampled jointly with adjustments of the observed statistics."""

    adjustments: Float[np.ndarray, "chains draws d_s"]
    """Draws of Gamma, in standard deviations of the simulated statistics."""

    def __init__(
        self,
        provenance: Provenance,
        support: UnconstrainedPrior,
        result: Draws,
        x: Float[np.ndarray, "n d_x"],
        *,
        adjustments: Float[np.ndarray, "chains draws d_s"],
    ):
        super().__init__(provenance, support, constrain_rows(support, result.positions), x, result=result)
        self.adjustments = adjustments


class RSNLE(SimulatingMethod):
    """A likelihood of summary statistics, learnt in rounds, that can shift each observed statistic at a cost.

    The posterior is that of theta and the shift Gamma, q(s - Gamma | theta) prior(theta) Laplace(Gamma; 0, |0.3 s|),
    with s the observed statistics in standard deviations of the simulated ones. A statistic that no theta can produce
    is shifted. A statistic that outliers have moved to a value typical of another theta is not.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task.
        summary: statistics of data sets, (m, n, d_x) to (m, d_s); four of the quantiles of each column by default.
        rounds: number of rounds of simulation, the first at draws of the prior, the others of the latest posterior.
        sets: data sets per round.
        adjustment: scale of the Laplace prior, relative to the observed statistics; 0 for none, which is sequential
            neural likelihood estimation.
        layers: coupling layers of the flow, at least two: each leaves one half of the statistics unchanged.
        hidden: width of their networks.
        chains: number of chains.
        warmup: tuning steps of each chain.
        draws: draws kept from each chain.
        options: those of `SimulatingMethod`: budget, parameter_names.

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
        **options: Any,
    ):
        super().__init__(prior, simulator, **options)
        if not callable(summary):
            raise InputError(f"`summary` must be a function of data sets (m, n, d_x); got {type(summary).__name__}.")
        self.summary = summary
        self.rounds = checks.integer(rounds, "rounds", at_least=1)
        self.sets = checks.integer(sets, "sets", at_least=10)
        self.adjustment = checks.real(adjustment, "adjustment")
        if self.adjustment < 0:
            raise InputError(f"`adjustment` must not be negative; got {self.adjustment}.")
        self.layers = checks.integer(layers, "layers", at_least=2)
        self.hidden = checks.integer(hidden, "hidden", at_least=1)
        self.chains = checks.integer(chains, "chains", at_least=2)
        self.warmup = checks.integer(warmup, "warmup", at_least=10)
        self.draws = checks.integer(draws, "draws", at_least=10)
        self.histories: list[TrainingHistory] = []
        """Training histories of the rounds of the last posterior."""
        self._plan = TrainingPlan(0, self.training, progress=True)

    def planned_simulations(self, n: int) -> int:
        """Number of simulator calls for one posterior of n observations."""
        return self.rounds * self.sets * n

    @classmethod
    def options_for_budget(cls, budget: int, n: int) -> dict[str, Any]:
        """Options so that one posterior of n observations fits into a budget: two rounds of equal size."""
        return {"rounds": 2, "sets": budget // (2 * n)}

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Store the training settings; the rounds need the observations."""
        super().train(seed, progress=progress)
        self._plan = TrainingPlan(seed, as_settings(settings, self.training), progress)
        return self

    def build_posterior(self, x: Any, *, seed: int = 0) -> AdjustedPosterior:
        """Simulate, train and sample in rounds, each closer to the posterior given the observations (n, d_x)."""
        x, key = self._observations(x), random_key(seed)
        observed = self._summarise(x[None], "x")[0]
        self._charge(self.planned_simulations(len(x)))
        self.histories = []
        key, key_prior, key_init = jax.random.split(key, 3)
        # All rounds start from the same untrained flow: a new one would need another compilation.
        untrained = untrained_flow(key_init, len(observed), self.support.dim, layers=self.layers, hidden=self.hidden)
        u = self._prior_draws(key_prior, self.sets)
        all_u, all_s = np.empty((0, u.shape[1])), np.empty((0, len(observed)))
        target = result = None
        for round_key in jax.random.split(key, self.rounds):
            key_simulate, key_fit, key_draw = jax.random.split(round_key, 3)
            sets = sets_at(self.simulator, constrain_rows(self.support, u), len(x), key_simulate)
            all_u = np.concatenate([all_u, u])
            all_s = np.concatenate([all_s, self._summarise(sets, "the simulated data")])
            with interrupts_are_final():
                flow, self.history = fit_flow(untrained, all_u, all_s, self._plan, key_fit)
            self.histories.append(self.history)
            target = round_target(self.support, flow, observed, self.adjustment)
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

    @double_precision
    def _sample(self, target: "RoundTarget", candidates: Float[np.ndarray, "k d"], key: PRNGKeyArray) -> Draws:
        size = len(target.observed) if self.adjustment else 0
        values = np.asarray(jax.vmap(lambda u: log_prob(u, target))(jnp.asarray(candidates)))
        best = np.argsort(-np.nan_to_num(values, nan=-np.inf))[: self.chains]
        start = np.hstack([candidates[best], np.zeros((self.chains, size))])
        return sample_nuts(log_prob, start, target, warmup=self.warmup, draws=self.draws, key=key)

    def _posterior(
        self, x: Float[np.ndarray, "n d_x"], result: Draws, scale: Float[np.ndarray, " d_s"]
    ) -> AdjustedPosterior:
        d = self.support.dim
        about_theta = result._replace(
            positions=result.positions[..., :d],
            r_hat=result.r_hat[:d],
            ess_bulk=result.ess_bulk[:d],
            ess_tail=result.ess_tail[:d],
        )
        adjustments = result.positions[..., d:] * (scale if self.adjustment else 1.0)
        return AdjustedPosterior(self._provenance(), self.support, about_theta, x, adjustments=adjustments)


class RoundTarget(NamedTuple):
    """All inputs of the density of one round; see `log_prob`."""

    support: UnconstrainedPrior
    flow: CouplingFlow
    observed: Float[Array, " d_s"]
    scale: Float[Array, " d_s"]


def round_target(
    support: UnconstrainedPrior, flow: CouplingFlow, observed: Float[np.ndarray, " d_s"], adjustment: float
) -> RoundTarget:
    """Build the density of a round; the scale of the adjustments is relative to the observed statistics."""
    z = flow.scale_x.standardise(observed[None])[0]
    return in_double(RoundTarget(support, flow, jnp.asarray(z), jnp.asarray(adjustment * np.abs(z))))


def log_prob(position: Float[Array, " d"], target: RoundTarget) -> Float[Array, ""]:
    """Log density of (u, g) up to a constant, with Gamma = scale g; of u alone if there are no adjustments."""
    u, g = jnp.split(position, [target.support.dim])
    z = target.observed - target.scale * g if len(g) else target.observed
    log_likelihood = target.flow.network_log_prob(target.flow.scale_theta(u), z)
    return log_likelihood + target.support.log_prob(u) - jnp.abs(g).sum()


def untrained_flow(key: PRNGKeyArray, d_s: int, d_theta: int, *, layers: int, hidden: int) -> CouplingFlow:
    """Build an untrained flow over `d_s` statistics, with blank scalers."""
    scalers = Scalers.blank(d_s, d_theta)
    return init_coupling_flow(key, scalers.x, scalers.theta, layers=layers, hidden=hidden)


def fit_flow(
    flow: CouplingFlow,
    u: Float[np.ndarray, "m d_theta"],
    s: Float[np.ndarray, "m d_s"],
    plan: TrainingPlan,
    key: PRNGKeyArray,
) -> tuple[CouplingFlow, TrainingHistory]:
    """Train the flow on simulated statistics and their unconstrained parameters, both standardised."""
    scale_s, scale_u = fit_standardiser(s, "zscore", "summary"), fit_standardiser(u, "zscore", "theta")
    return fit(
        eqx.tree_at(lambda flow: (flow.scale_x, flow.scale_theta), flow, (scale_s, scale_u)),
        _negative_log_prob,
        scale_u.standardise(u),
        scale_s.standardise(s),
        settings=plan.settings,
        key=jax.random.fold_in(key, plan.seed),
        progress=plan.progress,
    )


def _negative_log_prob(flow: CouplingFlow, t: Float[Array, " d_theta"], z: Float[Array, " d_s"]) -> Float[Array, ""]:
    return -flow.network_log_prob(t, z)
