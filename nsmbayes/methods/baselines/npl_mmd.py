"""NPL-MMD: the posterior bootstrap with the maximum mean discrepancy (Dellaporta et al. 2022)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.diagnostics.kernels import kernel_lengthscale, kernel_score
from nsmbayes.methods.baselines.descent import stochastic_descent
from nsmbayes.methods.baselines.simulating import SimulatingMethod
from nsmbayes.posteriors import SampledPosterior
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.simulators import check_gradients, require_differentiable


class NPLMMD(SimulatingMethod):
    """Each draw is the parameter whose simulations are nearest to the observations under random Dirichlet weights.

    Distances are squared maximum mean discrepancies, minimised by stochastic gradients through the simulator. There is
    no prior over theta: `prior` only defines the space of theta, and the descents start from its mean.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        simulator: a differentiable `JaxSimulator`, or a task that has one.
        draws: number of draws.
        simulations: simulations per step, n' in the paper.
        steps: steps of each descent.
        rate: learning rate of Adam, in the unconstrained space of theta.
        decay: whether the learning rate falls to zero; in the paper it is constant.
        start: initial parameters of the descents; the mean of the prior by default.
        lengthscale: of the kernel; the median heuristic on the observations by default.
        options: those of `SimulatingMethod`: budget, parameter_names.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.NPLMMD(task.prior, task, draws=50)
        >>> posterior = method.build_posterior(task.observe(20, seed=1).x)
        >>> posterior.sample((3,), seed=0).shape, method.simulations_used
        ((3, 4), 10000)
    """

    name, label = "npl-mmd", "NPL-MMD"

    def __init__(
        self,
        prior: Any,
        simulator: Any,
        *,
        draws: int = 500,
        simulations: int = 20,
        steps: int = 10,
        rate: float = 0.1,
        decay: bool = True,
        start: Any = None,
        lengthscale: float | None = None,
        **options: Any,
    ):
        super().__init__(prior, simulator, **options)
        self.draws = checks.integer(draws, "draws", at_least=10)
        self.simulations = checks.integer(simulations, "simulations", at_least=2)
        self.steps = checks.integer(steps, "steps", at_least=1)
        self.rate, self.decay = checks.positive(rate, "rate"), checks.flag(decay, "decay")
        self.start = None if start is None else checks.vector(start, "start", length=self.support.dim)
        self.lengthscale = checks.optional_positive(lengthscale, "lengthscale")

    def planned_simulations(self, n: int) -> int:
        """Number of simulator calls for one posterior; it does not depend on n."""
        return self.draws * self.simulations * self.steps

    @classmethod
    def options_for_budget(cls, budget: int, n: int) -> dict[str, Any]:
        """Options that fit into a budget: 500 draws, 20 simulations per step, and as many steps as possible."""
        return {"draws": 500, "simulations": 20, "steps": max(1, budget // 10_000)}

    @double_precision
    def build_posterior(self, x: Any, *, seed: int = 0) -> SampledPosterior:
        """Draw from the posterior given observations (n, d_x). The draws are independent, without Markov chains."""
        x, key = self._observations(x), random_key(seed)
        simulator = require_differentiable(self.simulator, self.label)
        lengthscale = kernel_lengthscale(x, "x", given=self.lengthscale)
        self._charge(self.planned_simulations(len(x)))
        key_weights, key_descent = jax.random.split(key)
        weights = jax.random.dirichlet(key_weights, jnp.ones(len(x)), (self.draws,))
        discrepancy = Discrepancy(simulator.one, self.support, jnp.asarray(x), jnp.asarray(lengthscale))
        descent = Descent(self.simulations, self.steps, self.rate, self.decay)
        keys = jax.random.split(key_descent, self.draws)
        u, gradients = minimisers(discrepancy, weights, jnp.asarray(self._unconstrained_start()), keys, descent)
        check_gradients(gradients)
        return SampledPosterior(self._provenance(), self.support, constrain_rows(self.support, u[None]), x)

    def _unconstrained_start(self) -> Float[np.ndarray, " d"]:
        if self.start is None:
            return self._prior_moments()[0]
        return np.asarray(self.support.unconstrain(jnp.asarray(self.start)))


class Discrepancy(NamedTuple):
    """MMD^2 between weighted observations and simulations at a parameter, up to a constant."""

    one: Callable[..., Any]
    support: UnconstrainedPrior
    x: Float[Array, "n d_x"]
    lengthscale: Float[Array, ""]

    def estimate(
        self, u: Float[Array, " d"], weights: Float[Array, " n"], key: Key[Array, ""], simulations: int
    ) -> Float[Array, ""]:
        """Unbiased estimate at the unconstrained parameter u, from a number of simulations."""
        theta = self.support.constrain(u)
        simulated = jax.vmap(self.one, (0, None))(jax.random.split(key, simulations), theta)
        return kernel_score(simulated, self.x, weights, self.lengthscale)


class Descent(NamedTuple):
    """Settings of the descent that minimises a discrepancy."""

    simulations: int
    steps: int
    rate: float
    decay: bool


def minimisers(
    discrepancy: Discrepancy,
    weights: Float[Array, "draws n"],
    start: Float[Array, " d"],
    keys: Key[Array, " draws"],
    descent: Descent,
) -> tuple[Float[np.ndarray, "draws d"], Float[np.ndarray, "draws steps d"]]:
    """The unconstrained minimiser for each row of weights, and the gradients of all steps."""
    return map_rows(_minimiser, np.arange(len(weights))[:, None], discrepancy, weights, start, keys, descent)


def _minimiser(row, discrepancy, weights, start, keys, descent):
    def loss(u, key):
        return discrepancy.estimate(u, weights[row[0]], key, descent.simulations)

    return stochastic_descent(loss, start, keys[row[0]], steps=descent.steps, rate=descent.rate, decay=descent.decay)
