"""ACE: generalised Bayesian inference by amortised cost estimation (Gao et al. 2023)."""

from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision, in_double
from nsmbayes._internal.random import random_key, seed_key
from nsmbayes.calibration import Calibration, CalibrationResult, GridCalibration, ResampledProblem, as_calibration
from nsmbayes.diagnostics.kernels import kernel_lengthscale, pairwise_mmd2
from nsmbayes.errors import InputError
from nsmbayes.methods.baselines.descent import stochastic_descent
from nsmbayes.methods.baselines.networks import CostNetwork, init_cost_network
from nsmbayes.methods.baselines.sets import SetMethod
from nsmbayes.methods.surrogate import require_trained
from nsmbayes.posteriors import SampledPosterior
from nsmbayes.priors import UnconstrainedPrior, constrain_rows, unconstrain_rows
from nsmbayes.samplers import sample_slice
from nsmbayes.surrogates import fit_standardiser
from nsmbayes.training import BatchLoss, TrainingSettings, as_settings, fit

_CANDIDATES = 256  # number of prior draws; the descent starts from the best one
_DESCENT_RATE = 0.01
_BETAS = (1.0, 10.0, 100.0, 1000.0, 10000.0)


class CostLoss(BatchLoss):
    """Mean squared error of the predicted distances between a batch of thetas and some of the targets.

    Row i of x holds the distances of theta i to all targets, in units of their mean. Each step uses `chosen` random
    targets and all observed targets, which come last.
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
        """Compute the loss of a batch."""
        others = len(self.targets) - self.observed
        rows = jax.random.choice(key, others, (min(self.chosen, others),), replace=False)
        rows = jnp.concatenate([rows, others + jnp.arange(self.observed)])
        summaries = jax.vmap(model.embedding)(self.targets[rows])
        predicted = jax.vmap(lambda t: jax.vmap(lambda s: model.network_cost(t, s))(summaries))(theta)
        return ((predicted - x[:, rows]) ** 2).mean()


class ACE(SetMethod):
    """exp(-beta f(theta, x)) prior(theta); the network f predicts the distance of simulations at theta from the data.

    Distances are squared maximum mean discrepancies. The network is trained on the distances between all simulated data
    sets and the targets: the same data sets, some of them with noise added, and observed data sets passed to `train`. A
    posterior then needs no simulations, but the network can be inaccurate for data that are unlike all targets.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        summaries: number of outputs of the deep set that summarises a data set.
        hidden: width of the layers.
        blocks: number of residual blocks of the network.
        augmented: number of targets with noise.
        noise: standard deviation of that noise, in standard deviations of the simulations.
        lengthscale: of the kernel; by default the median heuristic on the observed data sets, or on the simulated ones
            if none were given.
        calibration: how the learning rate is chosen; by default from a grid of powers of ten up to 10,000.
        minimiser_steps: steps of the descent to the minimiser of the predicted distance, T in the paper.
        bootstrap_draws: draws of each resampled posterior, M in the paper.
        chains: number of chains.
        warmup: tuning steps of each chain.
        draws: draws kept from each chain.
        targets_per_step: number of targets per training step, in addition to the observed ones.
        options: those of `SetMethod`: scaling, budget, parameter_names.

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
        calibration: Calibration[ResampledProblem] = GridCalibration(betas=_BETAS),  # noqa: B008 (frozen)
        minimiser_steps: int = 200,
        bootstrap_draws: int = 500,
        chains: int = 10,
        warmup: int = 300,
        draws: int = 400,
        targets_per_step: int = 32,
        **options: Any,
    ):
        super().__init__(prior, **options)
        self.summaries = checks.integer(summaries, "summaries", at_least=1)
        self.hidden = checks.integer(hidden, "hidden", at_least=1)
        self.blocks = checks.integer(blocks, "blocks", at_least=1)
        self.augmented = checks.integer(augmented, "augmented")
        self.noise = checks.positive(noise, "noise")
        self.lengthscale = checks.optional_positive(lengthscale, "lengthscale")
        self.calibration: Calibration[ResampledProblem] = as_calibration(
            calibration, ResampledProblem, "e.g. nsmbayes.calibration.GridCalibration()"
        )
        self.minimiser_steps = checks.integer(minimiser_steps, "minimiser_steps", at_least=1)
        self.bootstrap_draws = checks.integer(bootstrap_draws, "bootstrap_draws", at_least=self.support.dim + 2)
        self.chains = checks.integer(chains, "chains", at_least=2)
        self.warmup = checks.integer(warmup, "warmup", at_least=1)
        self.draws = checks.integer(draws, "draws", at_least=10)
        self.targets_per_step = checks.integer(targets_per_step, "targets_per_step", at_least=1)
        self._network: CostNetwork | None = None

    @property
    def network(self) -> CostNetwork:
        """The trained network."""
        return require_trained(self._network)

    def train(
        self,
        seed: int = 0,
        *,
        observed: Any = None,
        settings: TrainingSettings | None = None,
        progress: bool = True,
    ) -> Self:
        """Train the network on all data sets appended so far.

        `observed` is one observed data set (n, d_x) or several (K, n, d_x): the network then also learns the distances
        to them, as in the paper. It can still build posteriors for other data.
        """
        theta, x = self._all_simulations()
        observed = np.empty((0, *x.shape[1:])) if observed is None else self._observed_sets(observed)
        rng = np.random.default_rng((checks.integer(seed, "seed"), 0))
        noisy = x[rng.integers(len(x), size=self.augmented)]
        noisy = noisy + self.noise * x.std(axis=(0, 1)) * rng.standard_normal(noisy.shape)
        targets = np.concatenate([x, noisy, observed])
        name, sets = ("observed", observed) if len(observed) else ("x", x)
        lengthscale = kernel_lengthscale(sets.reshape(-1, x.shape[-1]), name, given=self.lengthscale)
        distances = pairwise_mmd2(x, targets, lengthscale)
        u = unconstrain_rows(self.support, theta)
        scale_x, scale_theta, unit = self._scale_x(), fit_standardiser(u, "zscore", "theta"), distances.mean()
        key_init, key_fit = jax.random.split(seed_key(seed))
        network, history = fit(
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
                chosen=self.targets_per_step,
                observed=len(observed),
            ),
            scale_theta.standardise(u),
            distances / unit,
            settings=as_settings(settings, self.training),
            key=key_fit,
            progress=progress,
        )
        self._record(history)
        self._network = in_double(network)
        return self

    def _observed_sets(self, observed: Any) -> Float[np.ndarray, "K n d_x"]:
        sets = checks.finite_array(observed, "observed")
        sets = sets[None] if sets.ndim == 2 else sets
        if sets.ndim != 3:
            raise InputError(f"`observed` must have shape (n, d_x) or (K, n, d_x); got {sets.shape}.")
        return np.stack([self._observations(each) for each in sets])

    @double_precision
    def build_posterior(self, x: Any, *, beta: float | None = None, seed: int = 0) -> SampledPosterior:
        """Draw from the posterior given observations (n, d_x), with n as in the training data sets, without simulating.

        `beta` is calibrated if it is not given. It multiplies the squared discrepancy, not a sum over observations.
        """
        model = Model(self.support, self.network)
        x, key, beta = self._observations(x), random_key(seed), checks.optional_positive(beta, "beta")
        key_start, key_boot, key_draw = jax.random.split(key, 3)
        prior_draws = self.support.sample(key_start, max(_CANDIDATES, self.chains))
        calibration: CalibrationResult | None = None
        if beta is None:
            minimiser = np.asarray(_minimise(model, jnp.asarray(x), prior_draws, self.minimiser_steps))
            problem = ResampledCost(model, x, minimiser, warmup=self.warmup, draws=self.bootstrap_draws, key=key_boot)
            calibration = self.calibration.calibrate(problem, seed=seed)
            beta = calibration.beta
        summary = model.network.summary(jnp.asarray(x))
        result = sample_slice(
            log_prob,
            np.asarray(prior_draws[: self.chains]),
            model,
            per_chain_data=(jnp.tile(summary, (self.chains, 1)), jnp.full(self.chains, beta)),
            warmup=self.warmup,
            draws=self.draws,
            key=key_draw,
        )
        draws = constrain_rows(self.support, result.positions)
        return SampledPosterior(
            self._provenance(), self.support, draws, x, beta=beta, result=result, calibration=calibration
        )


class Model(NamedTuple):
    """Prior and network, shared by all chains."""

    support: UnconstrainedPrior
    network: CostNetwork


def log_prob(u: Float[Array, " d"], data: tuple[Model, tuple[Float[Array, " k"], Float[Array, ""]]]) -> Array:
    """Log density of the unconstrained u, up to a constant, given the summary of the data."""
    (support, network), (summary, beta) = data
    return support.log_prob(u) - beta * network.cost(u, summary)


class ResampledCost(ResampledProblem):
    """Posteriors given resampled data, by slice sampling with one chain per resample and learning rate."""

    def __init__(
        self,
        model: Model,
        x: Float[np.ndarray, "n d_x"],
        minimiser: Float[np.ndarray, " d"],
        *,
        warmup: int,
        draws: int,
        key: PRNGKeyArray,
    ):
        self.n = len(x)
        self._model, self._x, self._minimiser = model, x, minimiser
        self._warmup, self._draws, self._key = warmup, draws, key

    def minimiser(self) -> Float[np.ndarray, " d"]:
        """The unconstrained parameter with the smallest predicted distance, where all chains start."""
        return self._minimiser

    def draw_resampled(
        self, betas: Float[np.ndarray, " k"], counts: Int[np.ndarray, "resamples n"]
    ) -> Float[np.ndarray, "k resamples draws d"]:
        """Draw at each of k learning rates given each resample, a vector of counts of the observations."""
        sets = jnp.asarray(np.stack([np.repeat(self._x, times, axis=0) for times in counts]))
        summaries = jnp.tile(jax.vmap(self._model.network.summary)(sets), (len(betas), 1))
        result = sample_slice(
            log_prob,
            np.tile(self._minimiser, (len(summaries), 1)),
            self._model,
            per_chain_data=(summaries, jnp.asarray(np.repeat(betas, len(counts)))),
            warmup=self._warmup,
            draws=self._draws,
            key=self._key,
        )
        return result.positions.reshape(len(betas), len(counts), self._draws, -1)


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
