"""ACE: generalised Bayesian inference by amortised cost estimation (Gao et al. 2023)."""

from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision, in_double
from nsmbayes._seeds import random_key, seed_key
from nsmbayes.calibration import GridCalibration
from nsmbayes.diagnostics import median_lengthscale
from nsmbayes.methods.base import NotTrainedError, as_settings
from nsmbayes.methods.sets import SetMethod
from nsmbayes.minima import stochastic_descent
from nsmbayes.posteriors.drawn import DrawnPosterior, constrain
from nsmbayes.posteriors.learning_rate import Calibration
from nsmbayes.priors import UnconstrainedPrior, unconstrain_rows
from nsmbayes.samplers import sample_slice
from nsmbayes.samplers.chains import Draws
from nsmbayes.surrogates import CostNetwork, fit_standardiser, init_cost_network
from nsmbayes.training import BatchLoss, TrainingSettings, fit

_CANDIDATES = 256  # prior draws of which the best one is where the descent starts
_DESCENT_RATE = 0.01
_CHUNK = 10


class CostLoss(BatchLoss):
    """Mean squared error of the predicted distances between a batch of thetas and some of the targets.

    The row of x that belongs to a theta holds its distances to all targets, in units of their mean. Each step looks at
    `chosen` of the targets at random; the observed ones, which come last, are always among them.
    """

    targets: Float[Array, "targets n d_x"]
    chosen: int = eqx.field(static=True)
    observed: int = eqx.field(static=True)

    def __call__(
        self,
        model: CostNetwork,
        theta: Float[Array, "batch d_theta"],
        x: Float[Array, "batch targets"],
        key: PRNGKeyArray,
    ) -> Float[Array, ""]:
        """The loss of a batch."""
        others = len(self.targets) - self.observed
        rows = jax.random.choice(key, others, (min(self.chosen, others),), replace=False)
        rows = jnp.concatenate([rows, others + jnp.arange(self.observed)])
        summaries = jax.vmap(model.embedding)(self.targets[rows])
        predicted = jax.vmap(lambda t: jax.vmap(lambda s: model.network_cost(t, s))(summaries))(theta)
        return ((predicted - x[:, rows]) ** 2).mean()


class ACE(SetMethod):
    """exp(-beta f(theta, x)) prior(theta), where a network f predicts how far simulations at theta are from the data.

    Far in the squared maximum mean discrepancy. The network is trained on the distances between all simulated data sets
    and targets: these data sets themselves, some of them with noise added, and observed ones if they are given to
    `train`. After that a posterior needs no simulations, but the network may be far off for data that are unlike all
    targets.

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        summaries: outputs of the deep set that reads a data set.
        hidden: width of the layers.
        blocks: residual blocks of the network.
        augmented: number of targets with noise.
        noise: standard deviation of that noise, in standard deviations of the simulations.
        lengthscale: of the kernel; by default the median heuristic on the observed data sets, or without them on the
            simulated ones.
        calibration: how the learning rate is chosen.
        minimiser_steps: steps of the descent to the minimiser of the predicted distance, T in the paper.
        bootstrap_draws: draws of each resampled posterior, M in the paper.
        chains: number of chains.
        warmup: steps of each chain that are spent on tuning.
        draws: draws kept from each chain.
        targets_a_step: at how many targets, besides the observed ones, a step of the training looks.
        scaling: how the network sees x: "zscore", "robust", "robust-asinh" or "none".
        budget: the most simulations it may be given.
        parameter_names: names for tables and plots.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> theta, x = nsm.simulate_sets(task.prior, task, m=50, n=20, seed=0)
        >>> method = nsm.ACE(task.prior).append_simulations(theta, x)
        >>> method.amortised, method.simulations_used  # then train(seed=0) and build_posterior(x)
        ('partially', 1000)
    """

    name, label, amortised = "ace", "ACE", "partially"
    training = TrainingSettings(
        learning_rate=1e-3, weight_decay=0.0, batch_size=128, validation_fraction=0.1, patience=50, max_epochs=200,
        schedule="cosine",
    )  # fmt: skip

    def __init__(
        self,
        prior: Any,
        *,
        summaries: int = 20,
        hidden: int = 64,
        blocks: int = 3,
        augmented: int = 100,
        noise: float = 2.0,
        lengthscale: float | None = None,
        calibration: GridCalibration | None = None,
        minimiser_steps: int = 200,
        bootstrap_draws: int = 500,
        chains: int = 10,
        warmup: int = 300,
        draws: int = 400,
        targets_a_step: int = 32,
        scaling: str = "zscore",
        budget: int | None = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        super().__init__(prior, scaling=scaling, budget=budget, parameter_names=parameter_names)
        self.summaries = _checks.integer(summaries, "summaries", at_least=1)
        self.hidden = _checks.integer(hidden, "hidden", at_least=1)
        self.blocks = _checks.integer(blocks, "blocks", at_least=1)
        self.augmented = _checks.integer(augmented, "augmented")
        self.noise = _checks.positive(noise, "noise")
        self.lengthscale = None if lengthscale is None else _checks.positive(lengthscale, "lengthscale")
        if calibration is None:
            calibration = GridCalibration(betas=(1.0, 10.0, 100.0, 1000.0, 10000.0))
        self.calibration = _checks.instance(calibration, "calibration", GridCalibration, "nsmbayes.GridCalibration()")
        self.minimiser_steps = _checks.integer(minimiser_steps, "minimiser_steps", at_least=1)
        self.bootstrap_draws = _checks.integer(bootstrap_draws, "bootstrap_draws", at_least=self.support.dim + 2)
        self.chains = _checks.integer(chains, "chains", at_least=2)
        self.warmup = _checks.integer(warmup, "warmup", at_least=1)
        self.draws = _checks.integer(draws, "draws", at_least=10)
        self.targets_a_step = _checks.integer(targets_a_step, "targets_a_step", at_least=1)
        self.network: CostNetwork | None = None

    def train(
        self,
        seed: int = 0,
        *,
        observed: Any = None,
        settings: TrainingSettings | None = None,
        progress: bool = True,
    ) -> Self:
        """Train the network on all data sets appended so far.

        `observed` is one observed data set (n, d_x) or several (K, n, d_x): the network then learns the distances to
        them as well, as in the paper. It still gives posteriors of other data.
        """
        theta, x = self._all_simulations()
        observed = np.empty((0, *x.shape[1:])) if observed is None else self._observed_sets(observed)
        rng = np.random.default_rng((_checks.integer(seed, "seed"), 0))
        noisy = x[rng.integers(len(x), size=self.augmented)]
        noisy = noisy + self.noise * x.std(axis=(0, 1)) * rng.standard_normal(noisy.shape)
        targets = np.concatenate([x, noisy, observed])
        lengthscale = self.lengthscale
        if lengthscale is None:
            lengthscale = median_lengthscale((observed if len(observed) else x).reshape(-1, x.shape[-1]))
        distances = pairwise_mmd2(x, targets, lengthscale)
        u = unconstrain_rows(self.support, theta)
        scale_x, scale_theta, unit = self._scale_x(), fit_standardiser(u, "zscore", "theta"), distances.mean()
        key_init, key_fit = jax.random.split(seed_key(seed))
        settings = as_settings(settings, self.training)
        network, self.history = fit(
            init_cost_network(
                key_init,
                scale_x,
                scale_theta,
                unit=float(unit),
                summaries=self.summaries,
                hidden=self.hidden,
                blocks=self.blocks,
            ),
            CostLoss(
                jnp.asarray(scale_x.standardise(targets), jnp.float32),
                chosen=self.targets_a_step,
                observed=len(observed),
            ),
            scale_theta.standardise(u),
            distances / unit,
            settings=settings,
            key=key_fit,
            progress=progress,
        )
        self.network = in_double(network)
        return self

    def _observed_sets(self, observed: Any) -> Float[np.ndarray, "K n d_x"]:
        sets = _checks.finite_array(observed, "observed")
        sets = sets[None] if sets.ndim == 2 else sets
        if sets.ndim != 3:
            raise InputError(f"`observed` must have shape (n, d_x) or (K, n, d_x); got {sets.shape}.")
        return np.stack([self._observations(each) for each in sets])

    @double_precision
    def build_posterior(self, x: Any, *, beta: float | None = None, seed: int = 0) -> DrawnPosterior:
        """Draws given as many observations (n, d_x) as the data sets of the training had; nothing is simulated.

        With `beta` given it is not calibrated. It multiplies the squared discrepancy, not a sum over observations.
        """
        if self.network is None:
            raise NotTrainedError("This method is not trained yet: call append_simulations(theta, x), then train().")
        x, key, network = self._observations(x), random_key(seed), self.network
        model = Model(self.support, network)
        key_start, key_boot, key_draw = jax.random.split(key, 3)
        prior_draws = self.support.sample(key_start, max(_CANDIDATES, self.chains))
        calibration: Calibration | None = None
        if beta is None:
            minimiser = np.asarray(_minimise(model, jnp.asarray(x), prior_draws, self.minimiser_steps))

            def draw_many(betas: Float[np.ndarray, " k"], counts: Int[np.ndarray, "B n"]) -> np.ndarray:
                sets = jnp.asarray(np.stack([np.repeat(x, times, axis=0) for times in counts]))
                summaries = jnp.tile(jax.vmap(network.summary)(sets), (len(betas), 1))
                own = summaries, jnp.asarray(np.repeat(betas, len(counts)))
                drawn = self._sample(model, own, np.tile(minimiser, (len(own[1]), 1)), self.bootstrap_draws, key_boot)
                return drawn.positions.reshape(len(betas), len(counts), self.bootstrap_draws, -1)

            calibration = self.calibration(draw_many, minimiser, len(x), seed=seed)
        beta = _checks.positive(beta, "beta") if calibration is None else calibration.beta
        own = jnp.tile(network.summary(jnp.asarray(x)), (self.chains, 1)), jnp.full(self.chains, beta)
        result = self._sample(model, own, np.asarray(prior_draws[: self.chains]), self.draws, key_draw)
        return DrawnPosterior(
            (self.name, self.label),
            self.support,
            constrain(self.support, result.positions),
            x,
            parameter_names=self.parameter_names,
            beta=beta,
            result=result,
            calibration=calibration,
        )

    def _sample(self, model: "Model", own: Any, start: np.ndarray, draws: int, key: PRNGKeyArray) -> Draws:
        return sample_slice(log_density, start, model, own=own, warmup=self.warmup, draws=draws, key=key)


class Model(NamedTuple):
    """What chains share."""

    support: UnconstrainedPrior
    network: CostNetwork


def log_density(u: Float[Array, " d"], data: tuple[Model, tuple[Float[Array, " k"], Float[Array, ""]]]) -> Array:
    """Log density of the unconstrained u, up to a constant; the data are known by their summary."""
    (support, network), (summary, beta) = data
    return support.log_density(u) - beta * network.cost(u, summary)


@eqx.filter_jit
def _minimise(
    model: Model, x: Float[Array, "n d_x"], candidates: Float[Array, "k d"], steps: int
) -> Float[Array, " d"]:
    summary = model.network.summary(x)
    costs = jax.vmap(lambda u: model.network.cost(u, summary))(candidates)
    best, spread = candidates[costs.argmin()], candidates.std(axis=0)

    def loss(v, key):
        del key
        return model.network.cost(best + spread * v, summary)

    v, _ = stochastic_descent(
        loss, jnp.zeros_like(best), jax.random.key(0), steps=steps, rate=_DESCENT_RATE, decay=False
    )
    return best + spread * v


def pairwise_mmd2(
    x: Float[np.ndarray, "m n d_x"], targets: Float[np.ndarray, "k n d_x"], lengthscale: float
) -> Float[np.ndarray, "m k"]:
    """MMD^2 between every data set and every target, all pairs of points included, in single precision.

    By NumPy: its exponential is several times faster here than the one that JAX compiles for a CPU.
    """
    centre = x.mean(axis=(0, 1))
    x, targets = (((sets - centre) / lengthscale).astype(np.float32) for sets in (x, targets))
    within = [np.array([_mean_kernels(each, each[None])[0] for each in sets]) for sets in (x, targets)]
    across = np.stack([_mean_kernels(each, targets) for each in x])
    return np.maximum(within[0][:, None] - 2 * across + within[1], 0.0)


def _mean_kernels(x: Float[np.ndarray, "n d_x"], targets: Float[np.ndarray, "k n d_x"]) -> Float[np.ndarray, " k"]:
    """mean_ab k(x_a, y_b) for each target y, in chunks that stay in the cache."""
    means = []
    for start in range(0, len(targets), _CHUNK):
        chunk = targets[start : start + _CHUNK].reshape(-1, x.shape[1])
        squared = np.zeros((len(x), len(chunk)), np.float32)
        for a, b in zip(x.T, chunk.T, strict=True):
            difference = a[:, None] - b
            difference *= difference
            squared += difference
        squared *= -0.5
        np.exp(squared, out=squared)
        means.append(squared.mean(axis=0, dtype=np.float64).reshape(-1, targets.shape[1]).mean(axis=1))
    return np.concatenate(means)
