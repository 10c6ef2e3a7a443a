"""Networks train in single precision; everything that determines a posterior runs in double precision.

JAX computes in float32 by default. The functions decorated here enable float64 while they run, so the package neither
depends on nor changes the user's global setting.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from nsmbayes._internal.compilation import keep_compiled_programs

keep_compiled_programs()  # here, because every module that computes imports this one

P = ParamSpec("P")
R = TypeVar("R")


def double_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with 64-bit floats enabled."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


@double_precision
def in_double(tree: Any) -> Any:
    """A model, or any other pytree, with its floats in double precision."""
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a, tree)
