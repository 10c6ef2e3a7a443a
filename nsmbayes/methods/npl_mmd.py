"""NPL-MMD: the posterior bootstrap with the maximum mean discrepancy (Dellaporta et al. 2022)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes import _checks
from nsmbayes._parallel import map_rows
from nsmbayes._precision import double_precision
from nsmbayes._seeds import random_key
from nsmbayes.kernels import kernel_score
from nsmbayes.methods.simulating import SimulatingMethod, kernel_lengthscale
from nsmbayes.minima import stochastic_descent
from nsmbayes.posteriors.drawn import DrawnPosterior, constrain
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.simulators import check_gradients, require_differentiable


class NPLMMD(SimulatingMethod):
    """Each draw is the parameter whose simulations come nearest to the observations under random Dirichlet weights.

    Nearest in the squared maximum mean discrepancy, by stochastic gradients through the simulator. There is no prior
    over theta: `prior` only tells the space of theta, and its centre is where the descents start.

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        simulator: a differentiable `JaxSimulator`, or a task that has one.
        draws: number of draws.
        simulations: simulations that a step takes, n' in the paper.
        steps: steps of each descent.
        rate: learning rate of Adam, in the unconstrained space of theta.
        decay: let it fall to zero. The paper's stays constant.
        start: parameters that the descents start from; the mean of the prior by default.
        lengthscale: of the kernel; the median heuristic on the observations by default.
        budget: the most simulations it may make.
        parameter_names: names for tables and plots.

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
        budget: int | None = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        super().__init__(prior, simulator, budget=budget, parameter_names=parameter_names)
        self.draws = _checks.integer(draws, "draws", at_least=10)
        self.simulations = _checks.integer(simulations, "simulations", at_least=2)
        self.steps = _checks.integer(steps, "steps", at_least=1)
        self.rate, self.decay = _checks.positive(rate, "rate"), _checks.flag(decay, "decay")
        self.start = None if start is None else _checks.vector(start, "start", length=self.support.dim)
        self.lengthscale = None if lengthscale is None else _checks.positive(lengthscale, "lengthscale")

    def planned_simulations(self, n: int) -> int:
        """How often the simulator will be called for one posterior; it does not depend on n."""
        return self.draws * self.simulations * self.steps

    @classmethod
    def within(cls, budget: int, n: int) -> dict[str, Any]:
        """Options that fit into a budget: 500 draws of 20 simulations a step, and as many steps as that allows."""
        return {"draws": 500, "simulations": 20, "steps": max(1, budget // 10_000)}

    @double_precision
    def build_posterior(self, x: Any, *, seed: int = 0) -> DrawnPosterior:
        """Draws given observations (n, d_x). They are independent given the data, so there is nothing to converge."""
        x, key = self._observations(x), random_key(seed)
        start = self._centre() if self.start is None else np.asarray(self.support.unconstrain(jnp.asarray(self.start)))
        simulator = require_differentiable(self.simulator, self.label)
        self._spend(self.planned_simulations(len(x)))
        lengthscale = kernel_lengthscale(x) if self.lengthscale is None else self.lengthscale
        key_weights, key_descent = jax.random.split(key)
        weights = jax.random.dirichlet(key_weights, jnp.ones(len(x)), (self.draws,))
        u, gradients = _minimisers(
            simulator.one,
            self.support,
            jnp.asarray(x),
            weights,
            jnp.asarray(start),
            jnp.asarray(lengthscale),
            jax.random.split(key_descent, self.draws),
            (self.simulations, self.steps, self.rate, self.decay),
        )
        check_gradients(gradients)
        return DrawnPosterior(
            (self.name, self.label),
            self.support,
            constrain(self.support, u[None]),
            x,
            parameter_names=self.parameter_names,
        )


def _minimisers(
    one: Callable[..., Any],
    support: UnconstrainedPrior,
    x: Float[Array, "n d_x"],
    weights: Float[Array, "draws n"],
    start: Float[Array, " d"],
    lengthscale: Float[Array, ""],
    keys: Key[Array, " draws"],
    how: tuple[int, int, float, bool],
) -> tuple[Float[np.ndarray, "draws d"], Float[np.ndarray, "draws steps d"]]:
    rows = np.arange(len(weights))[:, None]
    return map_rows(_minimiser, rows, weights, keys, (one, support, x, start, lengthscale), how)


def _minimiser(row, weights, keys, problem, how):
    """One draw, and the gradients on the way to it."""
    one, support, x, start, lengthscale = problem
    simulations, steps, rate, decay = how

    def discrepancy(u, key):
        simulated = jax.vmap(one, (0, None))(jax.random.split(key, simulations), support.constrain(u))
        return kernel_score(simulated, x, weights[row[0]], lengthscale)

    return stochastic_descent(discrepancy, start, keys[row[0]], steps=steps, rate=rate, decay=decay)
