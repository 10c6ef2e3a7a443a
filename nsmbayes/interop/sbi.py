"""Conversion of likelihood estimators that were trained with the sbi package.

Weights are copied without further training: the result is JAX in double precision, without torch. torch and sbi are
imported only where they are needed.
"""

from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.caller import warn_user
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.methods.likelihood import LikelihoodMethod
from nsmbayes.methods.nsm_bayes import NSMBayes
from nsmbayes.surrogates import MaskedAutoregressiveFlow, Scalers, Standardiser
from nsmbayes.surrogates.sbi import Affine, Chain, Embedding, MaskedAffine, Reorder, SbiMixture, config_of, sbi_flow

_ACTIVATIONS = {
    "ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus", "ELU": "elu", "SiLU": "silu",
    "LeakyReLU": "leaky_relu",
}  # fmt: skip
_DEFAULTS = {"beta": 1, "alpha": 1.0, "negative_slope": 0.01}

_Method = TypeVar("_Method", bound=LikelihoodMethod)


def from_sbi(
    estimator: Any, prior: Any, theta: Any, x: Any, *, method: type[LikelihoodMethod] = NSMBayes, **options: Any
) -> Any:
    """Build a trained method from a likelihood estimator that was trained with sbi, without further training.

    Args:
        estimator: the result of `NLE(...).append_simulations(theta, x).train()` in sbi; see `density_from_sbi`.
        prior: the torch prior, or any other prior that this package accepts.
        theta: the training parameters, (m, d_theta); torch tensors are accepted.
        x: the training simulations, (m, d_x). Observations outside their range cause a warning later.
        method: `nsmbayes.NSMBayes`, `nsmbayes.NSMBayesAmortised` or `nsmbayes.NLE`.
        options: options of the method. For a flow, `noise_levels` are (0,): only mixtures can be smoothed exactly.

    The method can be saved, and loaded without torch.

    Example:
        >>> import nsmbayes as nsm
        >>> nsm.from_sbi("an estimator", nsm.GaussianPrior([0.0], [1.0]), [[0.0]], [[0.0]], method="nle")
        Traceback (most recent call last):
        nsmbayes.errors.InputError: `method` must be nsmbayes.NSMBayes, NSMBayesAmortised or NLE; got 'nle'.
    """
    if not (isinstance(method, type) and issubclass(method, LikelihoodMethod)):
        raise InputError(f"`method` must be nsmbayes.NSMBayes, NSMBayesAmortised or NLE; got {method!r:.60}.")
    density = density_from_sbi(estimator)
    if not density.smoothable and issubclass(method, NSMBayes):
        options = {"noise_levels": (0.0,)} | options
    return _adopted(method(prior, **options), density, theta, x)


def adopt(method: _Method, estimator: Any, theta: Any, x: Any) -> _Method:
    """Let an existing method use a likelihood estimator that was trained with sbi; returns `method`. See `from_sbi`.

    A flow needs `NSMBayes(prior, noise_levels=(0,))`.
    """
    if not isinstance(method, LikelihoodMethod):
        raise InputError(
            f"`method` must be an nsmbayes.NLE or nsmbayes.NSMBayes; got {type(method).__name__}, whose surrogate is "
            "of another kind."
        )
    return _adopted(method, density_from_sbi(estimator), theta, x)


def _adopted(method: _Method, density: SbiMixture | MaskedAutoregressiveFlow, theta: Any, x: Any) -> _Method:
    d_theta, d_x = len(density.scale_theta.scale), len(density.scale_x.scale)
    checks.matrix(theta, "theta", width=d_theta, width_is="columns, like the condition of `estimator`")
    checks.matrix(x, "x", width=d_x, width_is="columns, like the input of `estimator`")
    return method.append_simulations(theta, x).adopt(density, config=config_of(density))


@double_precision
def density_from_sbi(estimator: Any) -> SbiMixture | MaskedAutoregressiveFlow:
    """Convert the density q(x | theta) of an estimator trained by sbi's NLE to an nsmbayes surrogate.

    `density_estimator="mdn"` becomes a Gaussian mixture, which can be smoothed exactly by noise levels, and "maf" a
    masked autoregressive flow. Densities that are not twice differentiable in x are rejected: score matching needs both
    derivatives. Z-scoring and embedding networks of theta with plain layers are also converted.

    sbi does not bound theta at the input of its network, so the density extrapolates far outside the prior.
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


def _mixture(estimator: Any) -> SbiMixture:
    from torch import nn  # pyright: ignore[reportMissingImports]

    if getattr(estimator, "_prior_transform", None) is not None:  # does not exist in sbi 0.26
        raise InputError(
            "`estimator` transforms x nonlinearly (z_score_x='transform_to_unconstrained'), after which its density is "
            "no Gaussian mixture in x. Train it with z_score_x='independent'."
        )
    net, d_x = estimator.net, estimator.input_shape[0]
    scale_theta, embedding = _condition(estimator)
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
        scale_theta=scale_theta,
        epsilon=float(net._epsilon),
        embedding=embedding,
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
        warn_user(
            "`estimator` is an affine flow in one dimension, that is a conditional Gaussian without skewness or excess "
            "kurtosis. Train density_estimator='mdn' instead.",
        )
    scale_theta, embedding = _condition(estimator)
    return sbi_flow(Chain(tuple(converted), embedding), Scalers(scale_x, scale_theta))


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


def _condition(estimator: Any) -> tuple[Standardiser, Embedding]:
    """The standardiser of theta, and the embedding layers before the network."""
    from sbi.utils.sbiutils import Standardize  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    d_theta = estimator.condition_shape[0]
    steps = [step for step in _flat(estimator.embedding_net) if not isinstance(step, nn.Identity)]
    scale_theta = _standardiser(d_theta)
    if steps and isinstance(steps[0], Standardize):
        first = steps.pop(0)
        scale_theta = _standardiser(d_theta, first._mean, first._std)
    layers: list[Affine] = []
    activations: list[str] = []
    for step in steps:
        name = _ACTIVATIONS.get(type(step).__name__)
        if isinstance(step, nn.Linear) and step.bias is not None:
            layers.append(_affine(step))
            activations.append("identity")
        elif name is not None and layers and activations[-1] == "identity" and _by_default(step):
            activations[-1] = name
        else:
            raise InputError(
                f"`estimator` has an embedding network for theta with a {type(step).__name__}; only linear layers and "
                f"{', '.join(_ACTIVATIONS)} are converted."
            )
    return scale_theta, Embedding(tuple(layers), tuple(activations))


def _flat(module: Any) -> list[Any]:
    """Flatten nested `Sequential`s, including sbi's `FCEmbedding`, into a list of steps."""
    from torch import nn  # pyright: ignore[reportMissingImports]

    if type(module).__name__ == "FCEmbedding":
        module = module.net
    return [one for step in module for one in _flat(step)] if isinstance(module, nn.Sequential) else [module]


def _by_default(step: Any) -> bool:
    """Whether an activation has the same options as in JAX."""
    return all(getattr(step, name, value) == value for name, value in _DEFAULTS.items())


def _standardiser(d: int, centre: Any = 0.0, scale: Any = 1.0) -> Standardiser:
    centre, scale = (jnp.broadcast_to(_array(a), d) for a in (centre, scale))
    return Standardiser(centre, scale, asinh=False)


def _affine(layer: Any) -> Affine:
    weight = layer.weight * layer.mask if hasattr(layer, "mask") else layer.weight
    return Affine(_array(weight), _array(layer.bias))


def _array(value: Any) -> Float[Array, "..."]:
    return jnp.asarray(checks.finite_array(value, "estimator"))
