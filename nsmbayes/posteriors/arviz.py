"""Export of posteriors to ArviZ, xarray and pandas, with the same groups for all supported versions."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.errors import InputError
from nsmbayes.posteriors.predictive import Source, column_labels
from nsmbayes.priors import GaussianPrior

_PRIOR_DRAWS = 1000
_STREAM = 6  # stream of random numbers
_OBSERVED = {"x": ("observation", "x_dim"), "weight": ("observation",)}


def as_arviz(posterior: Any, draws: int, chains: int, seed: int, **options: Any) -> Any:
    """Convert a posterior to an ArviZ object; see `Posterior.to_arviz`."""
    arviz = _needed("arviz", "to_arviz needs ArviZ: pip install 'nsmbayes[arviz]'")
    tree = as_tree(posterior, draws, chains, seed, **options)
    if int(arviz.__version__.partition(".")[0]) >= 1:
        return tree
    return arviz.InferenceData(**{name: node.to_dataset() for name, node in tree.children.items()})


def as_tree(
    posterior: Any,
    draws: int,
    chains: int,
    seed: int,
    *,
    log_likelihood: bool = True,
    predictive: int = 0,
    simulator: Any = None,
) -> Any:
    """Convert a posterior to a DataTree with one dataset per group; see `Posterior.to_xarray`."""
    xarray = _needed("xarray", "to_xarray needs xarray: pip install 'nsmbayes[arviz]'")
    theta = posterior.chains(draws, chains, seed)
    names, d_x = posterior.parameter_names, posterior.x.shape[1]
    coords = {
        "chain": np.arange(theta.shape[0]),
        "draw": np.arange(theta.shape[1]),
        "observation": np.arange(len(posterior.x)),
        "x_dim": list(column_labels(posterior.x_names, d_x)),
        "parameter": list(names),
    }

    def group(variables: dict[str, tuple[tuple[str, ...], Any]], **others: Any) -> Any:
        used = {dim for dims, _ in variables.values() for dim in dims}
        kept = {name: values for name, values in (coords | others).items() if name in used}
        about = {"inference_library": "nsmbayes", "method": posterior.label}
        return xarray.Dataset(variables, coords=kept, attrs=about)

    prior = _prior_draws(posterior, seed)
    alone = {"chain": np.arange(1), "draw": np.arange(len(prior))}
    groups = {
        "posterior": group({name: (("chain", "draw"), theta[..., j]) for j, name in enumerate(names)}),
        "prior": group({name: (("chain", "draw"), prior[None, :, j]) for j, name in enumerate(names)}, **alone),
        "observed_data": group({name: (_OBSERVED[name], value) for name, value in _observed(posterior).items()}),
    }
    stats = _statistics(posterior)
    log_prior = _log_prior(posterior, theta)
    if log_prior is not None:
        groups["log_prior"] = group({"log_prior": (("chain", "draw"), log_prior)})
    losses = _losses(posterior, theta) if checks.flag(log_likelihood, "log_likelihood") else None
    if losses is not None:
        groups["log_likelihood"] = group({"x": (("chain", "draw", "observation"), -posterior.beta * losses)})
        groups["log_likelihood"].attrs["note"] = "minus beta times the loss of each observation: not a likelihood"
        if log_prior is not None:
            stats["lp"] = (("chain", "draw"), log_prior - posterior.beta * losses.sum(axis=2))
    groups["sample_stats"] = group(stats)
    if checks.integer(predictive, "predictive"):
        source = Source.of(posterior, simulator)
        sets = {
            "posterior": posterior.sample((predictive,), seed=seed),
            "prior": _prior_draws(posterior, seed, predictive),
        }
        for name, some in sets.items():
            x = source.draw(some, len(posterior.x), seed)[None]
            dims, numbered = ("chain", "draw", "observation", "x_dim"), np.arange(len(some))
            groups[f"{name}_predictive"] = group({"x": (dims, x)}, chain=np.arange(1), draw=numbered)
    return xarray.DataTree.from_dict(groups)


def write_netcdf(posterior: Any, path: Any) -> None:
    """Write the groups of `to_xarray` to a NetCDF file, which all versions of ArviZ can read."""
    _needed("h5netcdf", "A NetCDF file needs h5netcdf: pip install h5netcdf")
    path.parent.mkdir(parents=True, exist_ok=True)
    as_tree(posterior, 1000, 4, 0).to_netcdf(path, engine="h5netcdf")


def as_frame(draws: Float[np.ndarray, "chains draws d"], names: tuple[str, ...]) -> Any:
    """Convert draws to a DataFrame; see `Posterior.to_pandas`."""
    pandas = _needed("pandas", "to_pandas needs pandas: pip install pandas")
    index = pandas.MultiIndex.from_product([range(draws.shape[0]), range(draws.shape[1])], names=["chain", "draw"])
    return pandas.DataFrame(draws.reshape(-1, len(names)), index=index, columns=list(names))


def _needed(module: str, message: str) -> Any:
    try:
        return __import__(module)
    except ImportError as error:
        raise ImportError(message) from error


def _observed(posterior: Any) -> dict[str, np.ndarray]:
    """The observations, and their weights if they are known."""
    try:
        return {"x": posterior.x, "weight": posterior.weights}
    except InputError:
        return {"x": posterior.x}


@double_precision
def _prior_draws(posterior: Any, seed: int, count: int = _PRIOR_DRAWS) -> Float[np.ndarray, "k d"]:
    support = getattr(posterior, "support", None)
    if isinstance(posterior.prior, GaussianPrior) or support is None:
        return posterior.prior.sample((count,), seed)
    return np.asarray(support.distribution.sample(random_key(seed, _STREAM), (count,)))


def _statistics(posterior: Any) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Variables of the sample_stats group: learning rate, weights and sampler diagnostics."""
    found: dict[str, tuple[tuple[str, ...], Any]] = {"learning_rate": ((), posterior.beta)}
    if "weight" in (observed := _observed(posterior)):
        found["weight"] = (("observation",), observed["weight"])
    if (factor := posterior.factor_by_number()) is not None:
        found["factor"] = (("observation",), factor.values)
    result = getattr(posterior, "result", None)
    if result is not None:
        found |= {
            name: (("parameter",), np.asarray(getattr(result, name))) for name in ("r_hat", "ess_bulk", "ess_tail")
        }
        found["acceptance_rate"] = (("chain",), np.asarray(result.acceptance_rate))
        found["divergences"] = (("chain",), np.asarray(result.divergences))
    return found


@double_precision
def _log_prior(posterior: Any, theta: Float[np.ndarray, "chains draws d"]) -> Float[np.ndarray, "chains draws"] | None:
    support = getattr(posterior, "support", None)
    if isinstance(posterior.prior, GaussianPrior):
        return np.asarray(posterior.prior.log_prob(theta))
    return None if support is None else np.asarray(jax.jit(support.distribution.log_prob)(theta))


def _losses(posterior: Any, theta: Float[np.ndarray, "chains draws d"]) -> Float[np.ndarray, "chains draws n"] | None:
    """The loss of each observation at each draw, or None if the posterior has no such loss."""
    flat = theta.reshape(-1, theta.shape[2])
    try:
        return posterior.losses_at(flat).reshape(*theta.shape[:2], -1)
    except InputError:
        return None
