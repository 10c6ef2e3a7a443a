"""From sbi: likelihood estimators that the sbi package has trained, and torch priors, converted for this package.

Weights are copied and nothing is trained again: the result is JAX in double precision, without torch. torch and sbi are
imported where they are needed and nowhere else.
"""

import warnings
from typing import Any, TypeVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.methods.likelihood import LikelihoodMethod
from nsmbayes.priors import GaussianPrior
from nsmbayes.surrogates import MaskedAutoregressiveFlow, Standardiser
from nsmbayes.surrogates.sbi import Affine, Chain, MaskedAffine, Reorder, SbiMixture

_Method = TypeVar("_Method", bound=LikelihoodMethod)


def adopt(method: _Method, estimator: Any, theta: Any, x: Any) -> _Method:
    """Let `method` use a likelihood estimator that sbi has trained, instead of training one; returns `method`.

    Args:
        method: an `nsmbayes.NLE` or `nsmbayes.NSMBayes`. A flow needs `NSMBayes(prior, noise_levels=(0,))`: only
            mixtures can be smoothed exactly.
        estimator: what `NLE(...).append_simulations(theta, x).train()` of sbi returned; see `from_sbi`.
        theta: the parameters it was trained on, (m, d_theta); a torch tensor is fine.
        x: the simulations it was trained on, (m, d_x). Observations outside their range cause a warning later.
    """
    if not isinstance(method, LikelihoodMethod):
        raise InputError(
            f"`method` must be an nsmbayes.NLE or nsmbayes.NSMBayes; got {type(method).__name__}, whose surrogate is "
            "of another kind."
        )
    density = from_sbi(estimator)
    d_theta, d_x = len(density.scale_theta.scale), len(density.scale_x.scale)
    checks.matrix(theta, "theta", width=d_theta, width_is="columns, like the condition of `estimator`")
    checks.matrix(x, "x", width=d_x, width_is="columns, like the input of `estimator`")
    return method.append_simulations(theta, x).adopt(density)


@double_precision
def from_sbi(estimator: Any) -> SbiMixture | MaskedAutoregressiveFlow:
    """The density q(x | theta) of an estimator that sbi's NLE has trained, as an nsmbayes surrogate.

    `density_estimator="mdn"` becomes a Gaussian mixture, which noise levels can smooth exactly, and "maf" a masked
    autoregressive flow. Anything that is not twice differentiable in x is refused: score matching needs both
    derivatives. Z-scoring is converted; embedding networks are refused.

    sbi does not bound theta before its network sees it, so that far outside the prior the density extrapolates.
    """
    try:
        from sbi.neural_nets.estimators import (  # pyright: ignore[reportMissingImports]
            MixtureDensityEstimator,
            NFlowsFlow,
        )
    except ModuleNotFoundError as error:
        raise ImportError("Converting estimators of sbi needs sbi: pip install 'nsmbayes[sbi]'.") from error
    if not isinstance(estimator, MixtureDensityEstimator | NFlowsFlow):
        raise InputError(
            "`estimator` must be what train() of sbi's NLE(prior, density_estimator='mdn') or 'maf' returns; got "
            f"{type(estimator).__name__}."
        )
    if len(estimator.input_shape) != 1 or len(estimator.condition_shape) != 1:
        raise InputError(
            "`estimator` must be a density of vectors x given vectors theta; got shapes "
            f"{tuple(estimator.input_shape)} and {tuple(estimator.condition_shape)}."
        )
    return _mixture(estimator) if isinstance(estimator, MixtureDensityEstimator) else _flow(estimator)


def prior_from_torch(prior: Any) -> Any:
    """A prior for this package from a torch distribution: a normal one, or sbi's `BoxUniform`."""
    from torch import distributions  # pyright: ignore[reportMissingImports]

    base = prior
    while isinstance(base, distributions.Independent):
        base = base.base_dist
    if isinstance(base, distributions.MultivariateNormal):
        return GaussianPrior(base.loc, base.covariance_matrix)
    if isinstance(base, distributions.Normal):
        return GaussianPrior(base.loc, base.scale**2)
    if isinstance(base, distributions.Uniform):
        low, high = (checks.vector(bound, "prior") for bound in (base.low, base.high))
        return dist.Uniform(jnp.asarray(low), jnp.asarray(high)).to_event(1)
    raise InputError(
        f"`prior` must be a torch Normal, MultivariateNormal or Uniform (BoxUniform); got {type(prior).__name__}. "
        "Write it as a numpyro distribution instead."
    )


def _mixture(estimator: Any) -> SbiMixture:
    from torch import nn  # pyright: ignore[reportMissingImports]

    if estimator._prior_transform is not None:
        raise InputError(
            "`estimator` transforms x nonlinearly (z_score_x='transform_to_unconstrained'), after which its density is "
            "no Gaussian mixture in x. Train it with z_score_x='independent'."
        )
    net, d_x = estimator.net, estimator.input_shape[0]
    steps = list(net._hidden_net) if isinstance(net._hidden_net, nn.Sequential) else [net._hidden_net]
    if [type(step) for step in steps] != [nn.Linear, nn.ReLU] * (len(steps) // 2):
        raise InputError(
            "`estimator` has a hidden network of its own; only linear layers with ReLU, as density_estimator='mdn' "
            "builds them, are converted."
        )
    width = net._logits_layer.in_features
    nothing = Affine(jnp.zeros((0, width)), jnp.zeros(0))
    return SbiMixture(
        hidden=tuple(map(_affine, steps[::2])),
        logits=_affine(net._logits_layer),
        means=_affine(net._means_layer),
        diagonal=_affine(net._unconstrained_diagonal_layer),
        upper=nothing if net._upper_layer is None else _affine(net._upper_layer),
        scale_x=_standardiser(d_x, estimator._transform_shift, estimator._transform_scale)
        if estimator.has_input_transform
        else _standardiser(d_x),
        scale_theta=_scale_theta(estimator),
        epsilon=float(net._epsilon),
    )


def _flow(estimator: Any) -> MaskedAutoregressiveFlow:
    from nflows import distributions, transforms  # pyright: ignore[reportMissingImports]
    from torch import tanh  # pyright: ignore[reportMissingImports]

    net, d_x = estimator.net, estimator.input_shape[0]
    for module in net.modules():
        if "Piecewise" in (name := type(module).__name__):
            raise InputError(
                f"`estimator` is made of splines ({name}), which have one continuous derivative, and score matching "
                "needs two of log q. Train density_estimator='mdn', or 'maf', instead of 'nsf'."
            )
        if getattr(module, "activation", tanh) is not tanh:
            raise InputError(
                f"`estimator` feeds x through {getattr(module.activation, '__name__', module.activation)!r} "
                f"({name}) and not tanh: a rectifier is not twice differentiable, and score matching needs two "
                "derivatives of log q. Train density_estimator='mdn', or 'maf', instead of 'made'."
            )
    parts = [net._transform]
    if isinstance(net._transform, transforms.CompositeTransform):
        parts = list(net._transform._transforms)
    scale_x = _standardiser(d_x)
    if isinstance(parts[0], transforms.PointwiseAffineTransform):  # z = x * scale + shift
        z_score = parts.pop(0)
        scale_x = _standardiser(d_x, -z_score._shift / z_score._scale, 1 / z_score._scale)
    converted = []
    for part in parts:
        if isinstance(part, transforms.MaskedAffineAutoregressiveTransform):
            converted.append(_masked_affine(part))
        elif isinstance(part, transforms.Permutation):
            converted.append(Reorder(jnp.asarray(part._permutation.cpu().numpy())))
        else:
            raise InputError(
                f"`estimator` has a transform that is not converted ({type(part).__name__}). Train "
                "density_estimator='mdn' or 'maf'."
            )
    if not isinstance(net._distribution, distributions.StandardNormal):
        raise InputError("`estimator` must have a standard normal base. Train density_estimator='mdn' or 'maf'.")
    if d_x == 1:
        warnings.warn(
            "`estimator` is an affine flow in one dimension, that is a conditional Gaussian without skewness or excess "
            "kurtosis. Train density_estimator='mdn' instead.",
            stacklevel=4,
        )
    return MaskedAutoregressiveFlow(
        transform=Chain(tuple(converted)),
        scale_x=scale_x,
        scale_theta=_scale_theta(estimator),
        probes=None,
        squash=False,
        activation="tanh",
        floor=0.0,
    )


def _masked_affine(part: Any) -> MaskedAffine:
    made = part.autoregressive_net
    if made.use_residual_blocks or any(block.batch_norm is not None for block in made.blocks):
        raise InputError(
            "`estimator` has residual blocks or batch normalisation; only plain masked layers, as "
            "density_estimator='maf' builds them, are converted."
        )
    return MaskedAffine(
        first=_affine(made.initial_layer),
        context=_affine(made.context_layer),
        blocks=tuple(_affine(block.linear) for block in made.blocks),
        last=_affine(made.final_layer),
        epsilon=part._epsilon,
    )


def _scale_theta(estimator: Any) -> Standardiser:
    from sbi.utils.sbiutils import Standardize  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    d_theta, embedding = estimator.condition_shape[0], estimator.embedding_net
    steps = embedding if isinstance(embedding, nn.Sequential) else [embedding]
    steps = [step for step in steps if not isinstance(step, nn.Identity)]
    if not steps:
        return _standardiser(d_theta)
    if len(steps) > 1 or not isinstance(steps[0], Standardize):
        raise InputError(
            "`estimator` has an embedding network for theta; only z-scoring is converted. Train without "
            "`embedding_net`."
        )
    return _standardiser(d_theta, steps[0]._mean, steps[0]._std)


def _standardiser(d: int, centre: Any = 0.0, scale: Any = 1.0) -> Standardiser:
    centre, scale = (jnp.broadcast_to(_array(a), d) for a in (centre, scale))
    return Standardiser(centre, scale, asinh=False)


def _affine(layer: Any) -> Affine:
    weight = layer.weight * layer.mask if hasattr(layer, "mask") else layer.weight
    return Affine(_array(weight), _array(layer.bias))


def _array(value: Any) -> Float[Array, "..."]:
    return jnp.asarray(checks.finite_array(value, "estimator"))
