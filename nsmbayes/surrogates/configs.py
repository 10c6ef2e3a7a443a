"""Configurations of surrogates: validated options from which `build` creates an untrained network."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes.errors import InputError
from nsmbayes.serialisation import registered
from nsmbayes.surrogates.base import Density
from nsmbayes.surrogates.maf import init_masked_autoregressive_flow
from nsmbayes.surrogates.mdn import Factor, init_mixture_density_network
from nsmbayes.surrogates.mixture import FEW_COLUMNS
from nsmbayes.surrogates.noisy_flow import init_noisy_flow
from nsmbayes.surrogates.scaling import Standardiser

_MOST_LAYERS, _WIDEST, _MOST_COPIES = 30, 100_000, 10_000


class Scalers(NamedTuple):
    """The standardisers of x and theta, which transform the inputs of the networks."""

    x: Standardiser
    theta: Standardiser

    @classmethod
    def blank(cls, d_x: int, d_theta: int, *, asinh: bool = False) -> "Scalers":
        """Identity maps, used as a template for loading saved numbers."""
        blank_x = Standardiser(jnp.zeros(d_x), jnp.ones(d_x), asinh=asinh)
        return cls(blank_x, Standardiser(jnp.zeros(d_theta), jnp.ones(d_theta), asinh=False))


class SurrogateConfig(ABC):
    """The options of one kind of surrogate. Subclasses are frozen dataclasses."""

    kind: ClassVar[str]
    trainable: ClassVar[bool] = True
    """Whether the surrogate from `build` can be trained; otherwise it is only a template for saved numbers."""

    @abstractmethod
    def build(self, key: PRNGKeyArray, scalers: Scalers, *, noise: tuple[float, float] | None = None) -> Density:
        """An untrained surrogate. `noise`: the smallest and largest noise level at which its density is needed."""

    def needs_noise(self) -> bool:
        """Whether the surrogate must be trained with noise if its density is needed at noise levels."""
        return False


@registered
@dataclass(frozen=True, kw_only=True)
class MDN(SurrogateConfig):
    """A mixture density network: a mixture of Gaussians whose parameters are the outputs of a network of theta.

    Args:
        components: number of Gaussian components of a network. By default 10 up to five columns of x; with more
            columns, 6 in each of two networks, which fit better.
        hidden: widths of the hidden layers; by default (64, 64), and (64, 64, 64) for several columns of x.
        floor: smallest standard deviation of a component, in units of the robust scale of the simulations.
        ceiling: largest diagonal entry of a component's covariance factor, in the same units.
        ensemble: number of networks, which are trained in one run and averaged; by default 1, and 2 with more than five
            columns of x.
        factor: "covariance" or "precision": which matrices the network outputs factors of. By default covariances up to
            five columns of x, where they fit better, and precisions above, where they train much faster.

    Example:
        >>> import nsmbayes as nsm
        >>> method = nsm.NSMBayes(nsm.tasks.get("gnk").prior, surrogate=nsm.MDN(components=5, hidden=(32, 32)))
    """

    kind: ClassVar[str] = "mdn"

    components: int | None = None
    hidden: tuple[int, ...] | None = None
    floor: float = 0.02
    ceiling: float = 1e3
    ensemble: int | None = None
    factor: Factor | None = None

    def __post_init__(self):
        if self.factor is not None:
            checks.choice(self.factor, "factor", ("covariance", "precision"))
        for name in ("components", "ensemble"):
            if getattr(self, name) is not None:
                checks.integer(getattr(self, name), name, at_least=1, at_most=_MOST_COPIES)
        if self.hidden is not None:
            object.__setattr__(self, "hidden", layer_widths(self.hidden, "hidden"))
        _check_bounds(floor=self.floor, ceiling=self.ceiling)

    def build(self, key: PRNGKeyArray, scalers: Scalers, *, noise: tuple[float, float] | None = None) -> Density:
        """An untrained network; `noise` is not used, since a mixture is smoothed exactly."""
        del noise
        d_x = len(scalers.x.scale)
        many = d_x > FEW_COLUMNS
        return init_mixture_density_network(
            key,
            *scalers,
            components=self.components or (6 if many else 10),
            hidden=self.hidden or ((64, 64, 64) if d_x > 1 else (64, 64)),
            floor=self.floor,
            ceiling=self.ceiling,
            ensemble=self.ensemble or (2 if many else 1),
            factor=self.factor or ("precision" if many else "covariance"),
        )


@registered
@dataclass(frozen=True, kw_only=True)
class MAF(SurrogateConfig):
    """A masked autoregressive flow. If its density is needed at noise levels, the noise is an input of the flow.

    Args:
        transforms: number of autoregressive transforms; by default 5, and 3 with noise as an input.
        hidden: width of the hidden layers of the transforms.
        depth: number of hidden layers of each transform; by default 2, and 1 with noise as an input.
        activation: "tanh", the only activation with a robustness certificate, or another smooth one.
        squash: whether to bound theta before it enters the network, unlike in the paper. Flows with noise as an input
            always do this.
        allow_one_dimension: accept x with one column, where the flow is a conditional Gaussian, for comparison with the
            paper. Not possible with noise as an input.
        base_hidden: widths of the hidden layers of the Gaussian base, which only a flow with noise as an input has.
        base_floor: smallest standard deviation of the Gaussian base.
        base_ceiling: largest diagonal entry of the covariance factor of the Gaussian base.
    """

    kind: ClassVar[str] = "maf"

    transforms: int | None = None
    hidden: int = 64
    depth: int | None = None
    activation: str = "tanh"
    squash: bool = True
    allow_one_dimension: bool = False
    base_hidden: tuple[int, ...] = (64, 64)
    base_floor: float = 0.02
    base_ceiling: float = 1e3

    def __post_init__(self):
        for name in ("transforms", "depth"):
            if getattr(self, name) is not None:
                checks.integer(getattr(self, name), name, at_least=1, at_most=_MOST_LAYERS)
        checks.integer(self.hidden, "hidden", at_least=1, at_most=_WIDEST)
        checks.flag(self.squash, "squash")
        checks.flag(self.allow_one_dimension, "allow_one_dimension")
        object.__setattr__(self, "base_hidden", layer_widths(self.base_hidden, "base_hidden"))
        _check_bounds(base_floor=self.base_floor, base_ceiling=self.base_ceiling)

    def _refuse_unused(self, noisy: bool) -> None:
        """Raise an error for options that this kind of flow does not have."""
        unused = _ONLY_WITHOUT_NOISE if noisy else _ONLY_WITH_NOISE
        changed = [name for name in unused if getattr(self, name) != getattr(MAF, name)]
        if changed:
            where = "with noise as an input" if noisy else "without noise as an input"
            raise InputError(f"`{changed[0]}` must be left out: a flow {where} has no such option.")

    def needs_noise(self) -> bool:
        """True: a flow cannot be smoothed exactly."""
        return True

    def build(self, key: PRNGKeyArray, scalers: Scalers, *, noise: tuple[float, float] | None = None) -> Density:
        """An untrained flow."""
        given = {"transforms": self.transforms, "depth": self.depth}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self._refuse_unused(noise is not None)
        if noise is None:
            return init_masked_autoregressive_flow(
                key,
                *scalers,
                hidden=self.hidden,
                activation=self.activation,
                squash=self.squash,
                allow_one_dimension=self.allow_one_dimension,
                **options,
            )
        return init_noisy_flow(
            key,
            *scalers,
            hidden=self.hidden,
            base_hidden=self.base_hidden,
            floor=self.base_floor,
            ceiling=self.base_ceiling,
            levels=noise,
            **options,
        )


_ONLY_WITHOUT_NOISE = ("activation", "squash", "allow_one_dimension")
_ONLY_WITH_NOISE = ("base_hidden", "base_floor", "base_ceiling")

SURROGATES: dict[str, type[SurrogateConfig]] = {each.kind: each for each in (MDN, MAF)}
"""The configuration class of each shorthand."""


def as_surrogate(surrogate: Any) -> SurrogateConfig:
    """`surrogate` as a configuration; a string selects the default configuration of that name."""
    if isinstance(surrogate, str):
        return SURROGATES[checks.choice(surrogate, "surrogate", tuple(SURROGATES))]()
    return checks.instance(surrogate, "surrogate", SurrogateConfig, "'mdn', 'maf' or e.g. nsmbayes.MDN(components=10)")


def layer_widths(hidden: Any, name: str) -> tuple[int, ...]:
    """`hidden` as a tuple of layer widths, after validation."""
    checks.instance(hidden, name, tuple | list, "a tuple of widths, e.g. (64, 64)")
    if not 0 < len(hidden) <= _MOST_LAYERS:
        raise InputError(f"`{name}` must contain 1 to {_MOST_LAYERS} widths; got {len(hidden)}.")
    return tuple(checks.integer(width, name, at_least=1, at_most=_WIDEST) for width in hidden)


def _check_bounds(**bounds: Any) -> None:
    (low_name, low), (high_name, high) = bounds.items()
    if checks.positive(low, low_name) >= checks.positive(high, high_name):
        raise InputError(f"`{low_name}` ({low}) must be below `{high_name}` ({high}).")
