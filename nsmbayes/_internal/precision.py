"""Networks train in single precision; everything that determines a posterior runs in double precision.

JAX computes in float32 by default. The functions decorated here enable float64 while they run. They also suspend the
user's settings of JAX and NumPy (precision, promotion rules, random numbers, floating-point errors), so that the
package neither depends on nor changes these settings.
"""

import functools
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes._internal.compilation import keep_compiled_programs
from nsmbayes.errors import InputError

keep_compiled_programs()  # here, because every module that computes imports this one

P = ParamSpec("P")
R = TypeVar("R")

_inside: ContextVar[bool] = ContextVar("inside_the_package", default=False)


@contextmanager
def own_settings() -> Iterator[None]:
    """A context with the settings of JAX and NumPy that the package expects; it does nothing if already active."""
    if _inside.get():
        yield
        return
    token = _inside.set(True)
    try:
        with ExitStack() as stack:
            for setting in (
                jax.enable_x64(False),
                jax.numpy_dtype_promotion("standard"),
                jax.numpy_rank_promotion("allow"),
                jax.default_matmul_precision(None),
                jax.debug_nans(False),
                jax.debug_infs(False),
                jax.threefry_partitionable(True),
                jax.default_prng_impl("threefry2x32"),
                np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"),
            ):
                stack.enter_context(setting)
            yield
    finally:
        _inside.reset(token)


def sheltered(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with the package's own settings."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with own_settings():
            return function(*args, **kwargs)

    return wrapped


def double_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with the package's own settings, and with 64-bit floats enabled."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with own_settings(), jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


class Sheltered:
    """A base class that makes the public methods and properties of its subclasses `sheltered`.

    Objects are pickled in double precision: otherwise JAX would read float64 as float32 in another process.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return _unpickled, (type(self), double_precision(pickle.dumps)(self.__dict__))
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise InputError(
                f"This {type(self).__name__} cannot be pickled ({error}). Save it with save(path), and read it with "
                "nsmbayes.load(path) in the other process."
            ) from error

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, member in list(vars(cls).items()):
            if name.startswith("_") and name not in ("__init__", "__repr__"):
                continue
            if (found := _sheltered_member(member)) is not None:
                setattr(cls, name, found)
                if isinstance(found, functools.cached_property):
                    found.__set_name__(cls, name)


@double_precision
def _unpickled(cls: type, data: bytes) -> Any:
    found = object.__new__(cls)
    found.__dict__.update(pickle.loads(data))
    return found


def _sheltered_member(member: Any) -> Any:
    """A sheltered version of a method or property; None for other members."""
    if isinstance(member, classmethod):
        return classmethod(sheltered(member.__func__))
    if isinstance(member, property):
        return property(None if member.fget is None else sheltered(member.fget), member.fset, doc=member.__doc__)
    if isinstance(member, functools.cached_property):
        found = functools.cached_property(sheltered(member.func))
        found.__doc__ = member.__doc__
        return found
    if callable(member) and not isinstance(member, type) and hasattr(member, "__code__"):
        return sheltered(member)
    return None


@double_precision
def in_double(tree: Any) -> Any:
    """A model, or any other pytree, with its float arrays in double precision."""
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a, tree)
