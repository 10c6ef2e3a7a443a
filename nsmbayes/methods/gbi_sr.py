"""GBI-SR: generalised Bayesian inference with the kernel score (Pacchiardi et al. 2024)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes._seeds import random_key
from nsmbayes.calibration import GridCalibration
from nsmbayes.kernels import kernel_score
from nsmbayes.methods.simulating import SimulatingMethod, kernel_lengthscale
from nsmbayes.minima import stochastic_descent
from nsmbayes.posteriors.drawn import DrawnPosterior, constrain
from nsmbayes.posteriors.learning_rate import Calibration
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers.chains import Draws, diagnose
from nsmbayes.samplers.langevin import adaptive_langevin
from nsmbayes.samplers.pseudo_marginal import sample_pseudo_marginal
from nsmbayes.simulators import JaxSimulator, check_gradients

_DESCENT_RATE = 0.05  # of Adam, in standard deviations of the prior
_STEP = 0.5  # of Langevin dynamics, times the standard deviation of the gradient


class Problem(NamedTuple):
    """Everything the loss depends on but theta, the resample and the learning rate."""

    support: UnconstrainedPrior
    centre: Float[Array, " d"]
    root: Float[Array, "d d"]
    x: Float[Array, "n d_x"]
    lengthscale: Float[Array, ""]

    def theta(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        """theta of a position v in which the prior has mean zero and unit covariance."""
        return self.support.constrain(self.centre + self.root @ v)

    def log_prior(self, v: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density of v, up to a constant."""
        return self.support.log_density(self.centre + self.root @ v)


class GBISR(SimulatingMethod):
    """exp(-beta sum_i S(P_theta, x_i)) prior(theta), with the kernel score S estimated from simulations at theta.

    The kernel is bounded, so an outlier can move the posterior only so far. A differentiable simulator is sampled with
    adaptive Langevin dynamics, any other with pseudo-marginal Metropolis-Hastings. The learning rate is chosen by
    Algorithm 3, for which most of the simulations are spent.

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task.
        simulations: simulations that an estimate of the loss takes, n' in the paper.
        bootstrap_simulations: the same while the learning rate is sought, n'_b in the paper.
        bootstrap_draws: draws of each resampled posterior, M in the paper.
        minimiser_steps: steps of the descent to the minimiser of the loss, T in the paper; without derivatives, draws
            of the posterior at beta = 1 whose mean stands for it.
        calibration: how the learning rate is chosen.
        warmup: steps not kept.
        draws: draws kept.
        groups: with more than one, pseudo-marginal steps redraw only one of so many groups of simulations at a time
            ("correlated"); 1 is the plain version.
        lengthscale: of the kernel; the median heuristic on the observations by default.
        budget: the most simulations it may make.
        parameter_names: names for tables and plots.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.GBISR(task.prior, task, warmup=50, draws=50)
        >>> posterior = method.build_posterior(task.observe(20, seed=1).x, beta=1.0)
        >>> posterior.sample((3,), seed=0).shape, method.simulations_used
        ((3, 4), 2900)
    """

    name, label = "gbi-sr", "GBI-SR"

    def __init__(
        self,
        prior: Any,
        simulator: Any,
        *,
        simulations: int = 15,
        bootstrap_simulations: int = 7,
        bootstrap_draws: int = 200,
        minimiser_steps: int = 200,
        calibration: GridCalibration | None = None,
        warmup: int = 500,
        draws: int = 500,
        groups: int = 1,
        lengthscale: float | None = None,
        budget: int | None = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        super().__init__(prior, simulator, budget=budget, parameter_names=parameter_names)
        self.simulations = _checks.integer(simulations, "simulations", at_least=2)
        self.bootstrap_simulations = _checks.integer(bootstrap_simulations, "bootstrap_simulations", at_least=2)
        self.bootstrap_draws = _checks.integer(bootstrap_draws, "bootstrap_draws", at_least=self.support.dim + 2)
        self.minimiser_steps = _checks.integer(minimiser_steps, "minimiser_steps", at_least=10)
        calibration = GridCalibration() if calibration is None else calibration
        self.calibration = _checks.instance(calibration, "calibration", GridCalibration, "nsmbayes.GridCalibration()")
        self.warmup = _checks.integer(warmup, "warmup", at_least=1)
        self.draws = _checks.integer(draws, "draws", at_least=10)
        self.groups = _checks.integer(groups, "groups", at_least=1)
        if self.groups > 1 and self._has_gradient:
            raise InputError("`groups` is for simulators without derivatives; leave it out.")
        self.lengthscale = None if lengthscale is None else _checks.positive(lengthscale, "lengthscale")

    @property
    def _has_gradient(self) -> bool:
        return self.simulator.differentiable

    def planned_simulations(self, n: int, *, calibrate: bool = True) -> int:
        """How often the simulator will be called for one posterior; it does not depend on n."""
        resampled = len(self.calibration.betas) * self.calibration.bootstraps * self.bootstrap_draws
        return (self.minimiser_steps + calibrate * resampled) * self.bootstrap_simulations + (
            self.warmup + self.draws
        ) * self.simulations

    @classmethod
    def within(cls, budget: int, n: int) -> dict[str, Any]:
        """Options that fit into a budget: what the posterior itself leaves over goes into the calibration."""
        left = budget - 200 * 7 - 1000 * 15
        return {"bootstrap_draws": max(10, left // (3 * 20 * 7))}

    @double_precision
    def build_posterior(self, x: Any, *, beta: float | None = None, seed: int = 0) -> DrawnPosterior:
        """Draws given observations (n, d_x); with `beta` given, nothing is spent on calibration."""
        x, key = self._observations(x), random_key(seed)
        lengthscale = kernel_lengthscale(x) if self.lengthscale is None else self.lengthscale
        beta = None if beta is None else _checks.positive(beta, "beta")
        self._spend(self.planned_simulations(len(x), calibrate=beta is None))
        problem = Problem(self.support, *map(jnp.asarray, (*self._spread(), x, lengthscale)))
        chains = _Gradients(self, problem) if self._has_gradient else _Estimates(self, problem)
        key_start, key_boot, key_draw = jax.random.split(key, 3)
        all_of_them = np.ones((1, len(x)))
        minimiser = chains.prepare(all_of_them[0], key_start)
        calibration: Calibration | None = None
        if beta is None:

            def draw_many(betas: Float[np.ndarray, " k"], counts: Int[np.ndarray, "B n"]) -> np.ndarray:
                pairs = np.repeat(betas, len(counts)), np.tile(counts, (len(betas), 1))
                drawn = chains.run(
                    *pairs,
                    minimiser,
                    key_boot,
                    simulations=self.bootstrap_simulations,
                    warmup=0,
                    draws=self.bootstrap_draws,
                )[0]
                return drawn.reshape(len(betas), len(counts), self.bootstrap_draws, -1)

            calibration = self.calibration(draw_many, minimiser, len(x), seed=seed)
        beta = _checks.positive(beta, "beta") if calibration is None else calibration.beta
        v, acceptance = chains.run(
            np.array([beta]),
            all_of_them,
            minimiser,
            key_draw,
            simulations=self.simulations,
            warmup=self.warmup,
            draws=self.draws,
        )
        u = np.asarray(problem.centre + v @ problem.root.T)
        return DrawnPosterior(
            (self.name, self.label),
            self.support,
            constrain(self.support, u),
            x,
            parameter_names=self.parameter_names,
            beta=beta,
            result=Draws(u, acceptance, np.zeros(1, int), *diagnose(u)),
            calibration=calibration,
        )


class _Gradients:
    """Chains of adaptive Langevin dynamics, for a differentiable simulator."""

    def __init__(self, method: GBISR, problem: Problem):
        self.method, self.problem = method, problem
        assert isinstance(method.simulator, JaxSimulator)
        self.one = method.simulator.one

    def prepare(self, counts: Float[np.ndarray, " n"], key: Key[Array, ""]) -> Float[np.ndarray, " d"]:
        """The minimiser of the loss; the gradients on the way tell how long steps may be."""
        how = self.method.bootstrap_simulations, self.method.minimiser_steps
        v, gradients = _descend(self.one, self.problem, jnp.asarray(counts), key, how)
        gradients = np.asarray(gradients)
        check_gradients(gradients)
        self.noise = gradients[len(gradients) // 2 :].std(axis=0).max() * np.sqrt(how[0])
        return np.asarray(v)

    def run(
        self,
        betas: np.ndarray,
        counts: np.ndarray,
        start: np.ndarray,
        key: Key[Array, ""],
        *,
        simulations: int,
        warmup: int,
        draws: int,
    ) -> tuple[Float[np.ndarray, "chains draws d"], Float[np.ndarray, " chains"]]:
        """Chains at these learning rates, given these resamples."""
        step_sizes = _STEP / (1 + betas * self.noise / np.sqrt(simulations))
        positions = _langevin(
            self.one,
            self.problem,
            jnp.asarray(betas),
            jnp.asarray(counts, float),
            jnp.asarray(step_sizes),
            jnp.asarray(start),
            jax.random.split(key, len(betas)),
            (simulations, warmup + draws),
        )
        return np.asarray(positions)[:, warmup:], np.ones(len(betas))


class _Estimates:
    """Chains of pseudo-marginal Metropolis-Hastings, for any simulator."""

    def __init__(self, method: GBISR, problem: Problem):
        self.method, self.problem = method, problem

    def prepare(self, counts: Float[np.ndarray, " n"], key: Key[Array, ""]) -> Float[np.ndarray, " d"]:
        """The mean of the posterior at beta = 1, in place of the minimiser of the loss."""
        drawn, _ = self.run(
            np.ones(1),
            counts[None],
            np.zeros(len(self.problem.centre)),
            key,
            simulations=self.method.bootstrap_simulations,
            warmup=0,
            draws=self.method.minimiser_steps,
        )
        return drawn[0].mean(axis=0)

    def run(
        self,
        betas: np.ndarray,
        counts: np.ndarray,
        start: np.ndarray,
        key: Key[Array, ""],
        *,
        simulations: int,
        warmup: int,
        draws: int,
    ) -> tuple[Float[np.ndarray, "chains draws d"], Float[np.ndarray, " chains"]]:
        """Chains at these learning rates, given these resamples."""
        weights = jnp.asarray(betas[:, None] * counts)

        def loss(v, keys):
            theta = np.repeat(np.asarray(_thetas(self.problem, jnp.asarray(v))), simulations, axis=0)
            x = self.method.simulator.rows(keys.ravel(), theta)
            return np.asarray(_scores(self.problem, jnp.asarray(x.reshape(len(v), simulations, -1)), weights))

        return sample_pseudo_marginal(
            lambda v: np.asarray(_log_priors(self.problem, jnp.asarray(v))),
            loss,
            np.tile(start, (len(betas), 1)),
            np.eye(len(start)),
            simulations=simulations,
            groups=self.method.groups,
            warmup=warmup,
            draws=draws,
            key=key,
        )


def _score(one: Callable[..., Any], problem: Problem, counts: Any, simulations: int, v: Any, key: Any) -> Any:
    """sum_i count_i S(P_theta, x_i), estimated."""
    simulated = jax.vmap(one, (0, None))(jax.random.split(key, simulations), problem.theta(v))
    return kernel_score(simulated, problem.x, counts, problem.lengthscale)


@eqx.filter_jit
def _descend(one: Callable[..., Any], problem: Problem, counts: Any, key: Any, how: tuple[int, int]):
    simulations, steps = how

    def loss(v, key):
        return _score(one, problem, counts, simulations, v, key)

    start = jnp.zeros_like(problem.centre)
    return stochastic_descent(loss, start, key, steps=steps, rate=_DESCENT_RATE, decay=True)


@eqx.filter_jit
def _langevin(one, problem, betas, counts, step_sizes, start, keys, how):
    simulations, steps = how

    def chain(beta, counts, step_size, key):
        def energy(v, key):
            return beta * _score(one, problem, counts, simulations, v, key) - problem.log_prior(v)

        def gradient(v, key):
            g = jax.grad(energy)(v, key)
            return jnp.where(jnp.isfinite(g), g, 0.0)

        return adaptive_langevin(gradient, start, key, steps=steps, step_size=step_size)

    return jax.vmap(chain)(betas, counts, step_sizes, keys)


_thetas = eqx.filter_jit(lambda problem, v: jax.vmap(problem.theta)(v))
_log_priors = eqx.filter_jit(lambda problem, v: jax.vmap(problem.log_prior)(v))


@eqx.filter_jit
def _scores(problem: Problem, simulated: Float[Array, "chains k d_x"], weights: Float[Array, "chains n"]):
    return jax.vmap(lambda y, w: kernel_score(y, problem.x, w, problem.lengthscale))(simulated, weights)
