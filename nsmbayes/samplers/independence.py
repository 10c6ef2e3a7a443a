"""Adaptive independence sampling: a mixture is fitted to the posterior along a tempered path, then used as proposal.

It is meant for few parameters and an expensive loss. A mixture of Student distributions soon follows a curved or
stretched posterior so closely that most proposals are accepted, and each proposal takes one evaluation of the loss and
no gradient. All evaluations of a stage are independent of one another and run on all cores.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import ConvergenceError, InputError
from nsmbayes.samplers.chains import MIN_ESS, Diagnostics, Draws, agree, as_traced, diagnose
from nsmbayes.samplers.metropolis import Chains, Evaluate, log_weights_of
from nsmbayes.samplers.students import Population, StudentMixture, fit_students, log_sum_exp
from nsmbayes.samplers.target import require_finite

LogPrior = Callable[[Float[Array, " d"], Any], Float[Array, ""]]
_COMPONENTS = 8
_FEW_COMPONENTS = 2  # with more than FEW parameters: eight covariances could not be estimated
FEW = 6
"""Up to this many parameters, the path from the prior to the posterior is short."""
_STAGES = 30
_COLDEST, _BISECTIONS = 1e-12, 40  # of the search for a temperature
_ENOUGH = 0.15  # smallest ESS of a tempered posterior, as a fraction of the draws of a stage
_GOOD = 0.5  # adaptation ends if the ESS of a stage is at least this fraction of its draws
_STALE = 3  # adaptation also ends after this many stages without improvement
_ARRIVED = 3  # adaptation has at least this many stages at the posterior itself: they find the tails
_EFFECTIVE = 0.5  # chains of a cheap loss run again if the ESS is a smaller fraction of the draws
_POOR = 0.2  # chains of any loss run once more if the ESS is a smaller fraction of the draws
_FAIR = 0.3  # chains run longer if the ESS is at least this fraction; otherwise the proposal is fitted again
_AIM, _LONGEST = 0.6, 5  # target ESS of longer chains, as a fraction, and largest factor of their length
_MOST_RUNS = 10  # total length of all repeated chains, about, in units of the requested draws
JUDGED = 4 * MIN_ESS
"""Convergence is judged from this many draws on: fewer cannot show whether a sampler works."""


@double_precision
def sample_independence(
    log_prior: LogPrior,
    loss: LogPrior,
    prior_draws: Any,
    data: Any = None,
    *,
    beta: float,
    chains: int,
    draws: int,
    key: Key[Array, ""],
    first: StudentMixture | None = None,
    before: Population | None = None,
    thin: bool = False,
) -> Draws:
    """Draws from the density proportional to exp(log_prior(position, data) - beta * loss(position, data)).

    A mixture of Student distributions is fitted to the density (see `adapt`) and used as a proposal that does not
    depend on the state of the chain. Proposals are accepted by the Metropolis-Hastings rule, so the draws are exact
    however good the fit is. A poor fit shows in the acceptance rate and the effective sample size.

    Args:
        log_prior: the log density of the prior, a JAX function.
        loss: the total loss, a JAX function. Proposals where it is NaN or infinite are never accepted.
        prior_draws: independent draws from the prior, shape (N, d), at least 100; N is the size of a stage. With
            `first` or `before` only N is used.
        data: any pytree; its arrays and floats are traced.
        beta: the learning rate.
        chains: number of chains.
        draws: draws of each chain.
        key: a JAX random key.
        first: the proposal of the first stage; by default, a Student distribution fitted to the draws of the prior.
        before: the parameters visited at another learning rate, to continue from; see `Draws.visited`.
        thin: for a cheap loss. If the effective sample size is less than half of the number of draws, the mixture is
            fitted again, once or several times, with the proposals of the chains included, and new chains run two to
            five times as long and are thinned to the requested number of draws. Without `thin`, chains run a second
            time, after such a fit, if they do not agree or the effective sample size is less than a fifth of the
            number of draws.

    Example:
        >>> def log_prior(position, data):
        ...     return -0.5 * jnp.sum(position**2)
        >>> def loss(position, data):
        ...     return 0.5 * jnp.sum((position - data) ** 2)
        >>> prior_draws = np.random.default_rng(0).standard_normal((500, 1))
        >>> key = jax.random.key(0)
        >>> result = sample_independence(log_prior, loss, prior_draws, 3.0, beta=2.0, chains=4, draws=500, key=key)
        >>> bool(abs(result.flat.mean() - 2) < 0.1), bool(result.acceptance_rate.min() > 0.5)
        (True, True)
    """
    chains, draws = checks.integer(chains, "chains", at_least=1), checks.integer(draws, "draws", at_least=4)
    evaluate = evaluation(log_prior, loss, data)
    population = adapt(evaluate, prior_draws, beta=beta, key=key, first=first, before=before, latest=thin)
    rng = _generator(jax.random.fold_in(key, 1))
    chain = Chains.begun(population, chains, beta, rng).extended(evaluate, draws, rng)
    found = diagnose(chain.positions)
    if thin:
        population, chain, found = _effective_chains(evaluate, population, chain, found, rng)
    elif chains * draws >= JUDGED and not (agree(found) and found.ess_bulk.min() >= _POOR * chains * draws):
        population = _with_stage(population, chain, rng)
        again = Chains.begun(population, chains, beta, rng).extended(evaluate, draws, rng)
        if not (better := diagnose(again.positions)).ess_bulk.min() <= found.ess_bulk.min():
            chain, found = again, better
    acceptance = chain.accepted.mean(axis=1)
    return Draws(chain.positions, acceptance, np.zeros(chains, int), *found, visited=population)


def _effective_chains(
    evaluate: Evaluate, population: Population, chain: Chains, found: Diagnostics, rng: np.random.Generator
) -> tuple[Population, Chains, Diagnostics]:
    """Chains of the same length, half of whose draws are effective if possible, and all parameters visited for them.

    If the proposal misses the ends of a curved posterior, chains get stuck there, also longer chains. So the proposal
    is fitted again, to the proposals of the chains, until it is fair; then chains run longer and are thinned. If they
    still get stuck, the proposal is fitted to them as well, and so on.
    """
    chains, draws, _ = chain.positions.shape
    asked, left, best = chains * draws, _MOST_RUNS, (chain, found)
    while not best[1].ess_bulk.min() >= _EFFECTIVE * asked and left > 0:
        population = _with_stage(population, chain, rng)
        chain = Chains.begun(population, chains, chain.beta, rng).extended(evaluate, draws, rng)
        found, left = diagnose(chain.positions), left - 1
        share = np.nan_to_num(found.ess_bulk.min()) / asked
        thinned = chain
        if share >= _FAIR or left < _LONGEST:
            longer = int(np.clip(np.ceil(_AIM / max(share, 1e-3)), 2, _LONGEST))
            chain, left = chain.extended(evaluate, (longer - 1) * draws, rng), left - longer + 1
            thinned = chain._replace(positions=chain.positions[:, longer - 1 :: longer])
            found = diagnose(thinned.positions)
        if not found.ess_bulk.min() <= best[1].ess_bulk.min():
            best = thinned, found
    return population, *best


def _with_stage(population: Population, chain: Chains, rng: np.random.Generator) -> Population:
    """The population with the chains' last proposals as one more stage, and a proposal fitted to all of it."""
    new, log_priors, losses = chain.tried
    proposals, sizes = (*population.proposals, chain.proposal), (*population.stage_sizes, len(new))
    shares = np.log(np.asarray(sizes) / sum(sizes))
    densities = np.stack([one.log_prob(new) for one in proposals])
    old = np.logaddexp(
        population.log_proposals + np.log1p(-len(new) / sum(sizes)),
        chain.proposal.log_prob(population.positions) + shares[-1],
    )
    whole = Population(
        np.concatenate([population.positions, new]),
        np.concatenate([population.log_priors, log_priors]),
        np.concatenate([population.losses, losses]),
        np.concatenate([old, log_sum_exp(densities + shares[:, None], axis=0)]),
        proposals,
        chain.proposal,
        sizes,
    )
    log_weights = log_weights_of(whole, chain.beta)
    weights = np.exp(log_weights - log_sum_exp(log_weights))
    return whole._replace(best=fit_students(whole.positions, weights, _components(new.shape[1]), rng))


def _components(d: int) -> int:
    return _COMPONENTS if d <= FEW else _FEW_COMPONENTS


def evaluation(log_prior: LogPrior, loss: LogPrior, data: Any = None) -> Evaluate:
    """The function that `adapt` takes, made of two JAX functions: it evaluates many positions on all cores."""
    data = as_traced(data)
    return lambda positions: map_rows(_parts, positions, log_prior, loss, data)


def effective_draws(population: Population, beta: float) -> float:
    """The effective sample size of a population for the posterior at learning rate `beta`."""
    return _effective(log_weights_of(population, beta))


def bent_around(draws: Float[np.ndarray, "n d"], key: Key[Array, ""]) -> StudentMixture:
    """A proposal for a target similar to that of `draws`, with as many components as in `adapt`."""
    return fit_students(draws, np.full(len(draws), 1 / len(draws)), _components(draws.shape[1]), _generator(key))


def resample(population: Population, beta: float, count: int) -> Float[np.ndarray, "count d"]:
    """`count` posterior draws, resampled by importance weights; deterministic for a given population."""
    log_weights = log_weights_of(population, beta)
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max()))
    return population.positions[np.searchsorted(cumulative, cumulative[-1] * (np.arange(count) + 0.5) / count)]


@double_precision
def adapt(
    evaluate: Evaluate,
    prior_draws: Any,
    *,
    beta: float,
    key: Key[Array, ""],
    first: StudentMixture | None = None,
    before: Population | None = None,
    rough: bool = False,
    quick: bool = False,
    latest: bool = False,
) -> Population:
    """A population of weighted draws around the posterior, and a mixture fitted to it.

    The first stage draws from `first`, or from a Student distribution fitted to the draws from the prior. Every stage
    weights the draws of all stages so far for the tempered posterior, with the largest temperature up to 1 that leaves
    enough effective draws, fits a mixture to them, and draws from it. The weights are importance weights with respect
    to the mixture of all proposals. If a population `before` is given, of the same loss at another learning rate, the
    first stage is already fitted to it. A `rough` population has proposals of one component and ends with the first
    stage at the posterior; a `quick` population ends with the second. With `latest` the best proposal is the one fitted
    to all draws: usually better, but untested.

    Raises:
        ConvergenceError: if the path does not reach the posterior.
    """
    start = checks.matrix(prior_draws, "prior_draws", min_rows=100)
    (N, d), beta = start.shape, checks.positive(beta, "beta")
    if 20 * d > N:
        raise InputError(f"`prior_draws` needs at least {20 * d} rows for {d} dimensions; got {N}. Draw more.")
    rng = _generator(key)
    enough = max(_ENOUGH * N, 10 * d)
    components = 1 if rough else _components(d)
    wanted = 1 if rough else 2 if quick else _ARRIVED
    best_share, arrived, stale, temperature = 0.0, 0, 0, 0.0

    def refit(population):
        temperature, log_weights = _tempered(population, beta, enough)
        weights = np.exp(log_weights - log_sum_exp(log_weights))
        return temperature, fit_students(population.positions, weights, components, rng)

    if before is None:
        proposals = [fit_students(start, np.full(N, 1 / N), 1, rng) if first is None else first]
        parts, densities, sizes = [], np.empty((0, 0)), ()
    else:
        temperature, proposal = refit(before)
        proposals, sizes = [*before.proposals, proposal], before.stage_sizes
        arrived = max(0, wanted - (2 if before.rough else 1))
        parts = [(before.positions, before.log_priors, before.losses)]
        densities = np.stack([one.log_prob(before.positions) for one in before.proposals])
    best, most, population = proposals[-1], len(proposals) + _STAGES, before
    while arrived < wanted or (not (rough or quick) and best_share < _GOOD and stale < _STALE):
        if len(proposals) == most:
            raise ConvergenceError(
                f"After {_STAGES} stages the mixture does not follow the posterior yet (temperature {temperature:.2g} "
                "of 1). Use NUTS, or more draws from the prior."
            )
        new = proposals[-1].sample(N, rng)
        parts.append((new, *evaluate(new)))
        densities = _extended(densities, proposals, [part[0] for part in parts])
        sizes = (*sizes, N)
        population = _pool(parts, densities, proposals, best, sizes)
        require_finite(log_weights_of(population, beta), "parameters that were tried")
        share = _effective(log_weights_of(_pool(parts[-1:], densities[-1:, -N:], proposals[-1:], best, (N,)), beta)) / N
        arrived += temperature == 1
        stale = stale + 1 if temperature == 1 and share <= 1.05 * best_share else 0
        if share > best_share:
            best, best_share = proposals[-1], share
        temperature, proposal = refit(population)
        proposals.append(proposal)
    assert population is not None  # there was a stage
    return population._replace(best=proposals[-1] if latest else best, rough=rough or quick)


def _extended(
    densities: np.ndarray, proposals: list[StudentMixture], positions: list[np.ndarray]
) -> Float[np.ndarray, "stages total"]:
    """Log densities of all proposals at the positions of all stages, given `densities` without the last stage."""
    *old, new = positions
    at_old = [proposals[-1].log_prob(one) for one in old]
    at_new = [proposal.log_prob(new) for proposal in proposals]
    return np.column_stack([np.vstack([densities, np.concatenate([*at_old, []])]), at_new])


def _pool(
    parts: list[tuple[np.ndarray, ...]],
    densities: Float[np.ndarray, "stages total"],
    proposals: list[StudentMixture],
    best: StudentMixture,
    sizes: tuple[int, ...],
) -> Population:
    positions, log_priors, losses = (np.concatenate(part) for part in zip(*parts, strict=True))
    shares = np.log(np.asarray(sizes) / sum(sizes))
    log_mixture = log_sum_exp(densities + shares[:, None], axis=0)
    return Population(positions, log_priors, losses, log_mixture, tuple(proposals), best, sizes)


def _effective(log_weights: np.ndarray) -> float:
    if not np.isfinite(log_weights).any():
        return 0.0
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def _tempered(population: Population, beta: float, enough: float) -> tuple[float, np.ndarray]:
    """Temperature t and log weights for exp(-t beta loss) prior, with the largest t up to 1 that has enough ESS.

    If the proposals are far narrower than the prior, no t has enough. Then the weights for t = 1 are raised to a power
    that leaves enough: the path goes directly from the proposals to the posterior, not through the prior.
    """

    def tempered(t):
        return log_weights_of(population, t * beta)

    whole = tempered(1.0)
    if _effective(whole) >= enough:
        return 1.0, whole
    if _effective(tempered(_COLDEST)) >= enough:
        path = tempered
    else:

        def path(t):
            return np.where(np.isfinite(whole), t * np.where(np.isfinite(whole), whole, 0), -np.inf)

    low, high = _COLDEST, 1.0
    for _ in range(_BISECTIONS):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if _effective(path(middle)) > enough else (low, middle)
    return low, path(low)


def _parts(u, log_prior, loss, data):
    return jnp.asarray(log_prior(u, data), float), jnp.asarray(loss(u, data), float)


def _generator(key: Key[Array, ""]) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
