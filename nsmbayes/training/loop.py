"""Fit a network to simulations: minibatches, early stopping, one jitted scan per epoch."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from tqdm import tqdm

from nsmbayes.errors import InputError, TrainingError
from nsmbayes.surrogates import Standardiser, Trend
from nsmbayes.training.settings import TrainingSettings

_VALIDATION_CHUNK = 8192
_FIXED = (Standardiser, Trend)  # parts of a model that are not trained

Model = TypeVar("Model", bound=eqx.Module)
Augment = Callable[[PRNGKeyArray, Float[Array, "size d_x"]], Float[Array, "size d_seen"]]
PointLoss = Callable[[Any, Float[Array, " d_theta"], Float[Array, " d_x"]], Float[Array, ""]]


_final: ContextVar[bool] = ContextVar("interrupts_are_final", default=False)


@contextmanager
def interrupts_are_final() -> Iterator[None]:
    """Within, Ctrl-C ends training with KeyboardInterrupt: for callers that would go on with a half-trained network."""
    token = _final.set(True)
    try:
        yield
    finally:
        _final.reset(token)


class BatchLoss(eqx.Module):
    """A loss of a whole batch, for objectives that are not a mean over simulations. Arrays in it are not trained."""

    @abstractmethod
    def __call__(
        self, model: Any, theta: Float[Array, "batch d_theta"], x: Float[Array, "batch *x"], key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """The loss of a batch; `key` changes in every step, and is always the same for the validation set."""


class Stopped(StrEnum):
    """Why training ended, as shown to the user."""

    EARLY = "the validation loss stopped improving"
    MAX_EPOCHS = "the maximum number of epochs was reached"
    INTERRUPTED = "interrupted by the user; the best weights so far were kept"


@dataclass(frozen=True)
class TrainingHistory:
    """Losses per epoch, and how training ended."""

    train_loss: Float[np.ndarray, " epochs"]
    validation_loss: Float[np.ndarray, " epochs"]
    best_epoch: int
    stopped: Stopped
    seconds: float
    compile_seconds: float

    @property
    def best_validation_loss(self) -> float:
        """The validation loss of the weights that were kept."""
        return float(self.validation_loss[self.best_epoch])


def fit(
    model: Model,
    loss: PointLoss | BatchLoss,
    theta: Float[np.ndarray, "m d_theta"],
    x: Float[np.ndarray, "m *x"],
    *,
    settings: TrainingSettings,
    key: PRNGKeyArray,
    augment: Augment | None = None,
    progress: bool = True,
) -> tuple[Model, TrainingHistory]:
    """Minimise the mean of `loss(model, theta_i, x_i)` over the simulations; return the best model on held-out ones.

    With `augment` the loss gets augment(key, x) instead of x: a new one in every batch, a fixed one for the held-out
    simulations. With a `BatchLoss`, minimise the loss of random batches instead.

    Everything in `model` except its standardisers and trend is trained, in float32. Ctrl-C ends training and keeps the
    best weights so far, with a warning; within `interrupts_are_final` it is raised.
    """
    key, key_split = jax.random.split(key)
    m = len(theta)
    m_validation = max(1, round(m * settings.validation_fraction))
    if m - m_validation < 1:
        raise InputError(f"`theta` needs at least 2 simulations, one to train on and one to validate; got {m}.")
    order = np.asarray(jax.random.permutation(key_split, m))
    validation, train = (
        tuple(jnp.asarray(a[rows], jnp.float32) for a in (theta, x))
        for rows in (order[:m_validation], order[m_validation:])
    )
    if augment is not None:
        validation = validation[0], augment(jax.random.fold_in(key_split, 1), validation[1])
    params, frozen = eqx.partition(model, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, _FIXED))
    params, fixed = _single(params), _single(frozen)
    state = settings.optimiser(len(train[0])).init(ravel_pytree(params)[0])
    best, best_loss, best_epoch = params, np.inf, -1
    history: list[tuple[float, float]] = []
    seconds: list[float] = []
    stopped = Stopped.MAX_EPOCHS
    bar = tqdm(total=settings.max_epochs, desc="training", unit="epoch", disable=not progress, leave=True)
    try:
        for epoch in range(settings.max_epochs):
            start = time.perf_counter()
            params, state, losses = run_epoch(
                params, state, fixed, loss, augment, settings, train, validation, jax.random.fold_in(key, epoch)
            )
            train_loss, validation_loss = map(float, losses)
            seconds.append(time.perf_counter() - start)
            history.append((train_loss, validation_loss))
            if validation_loss < best_loss:
                best, best_loss, best_epoch = params, validation_loss, epoch
            patience_left = settings.patience - (epoch - best_epoch)
            bar.total = min(settings.max_epochs, epoch + 1 + patience_left)  # epochs left without further improvement
            bar.set_postfix_str(f"train {train_loss:.4f}, validation {validation_loss:.4f}, best {best_loss:.4f}")
            bar.update()
            if not np.isfinite(train_loss):
                raise TrainingError(
                    f"The training loss became {train_loss} in epoch {epoch}. Lower `learning_rate`, and look for "
                    "extreme simulations: drop or transform them (log, asinh), and the observations in the same way."
                )
            if patience_left == 0:
                stopped = Stopped.EARLY
                break
    except KeyboardInterrupt:
        if best_epoch < 0 or _final.get():
            raise
        stopped = Stopped.INTERRUPTED
        warnings.warn(
            f"Training was interrupted after {len(history)} of at most {settings.max_epochs} epochs: the best weights "
            "so far were kept, and posteriors of this network will say so. Call train() again to train it fully.",
            stacklevel=3,
        )
    finally:
        bar.close()
    if best_epoch < 0:
        raise TrainingError(
            "The validation loss was never finite: no weights can be preferred to those that training began with. Look "
            "for extreme simulations, and raise `validation_fraction` if there are few."
        )
    losses = np.asarray(history)
    typical = float(np.median(seconds[1:])) if len(seconds) > 1 else 0.0
    return eqx.combine(best, frozen), TrainingHistory(
        train_loss=losses[:, 0],
        validation_loss=losses[:, 1],
        best_epoch=best_epoch,
        stopped=stopped,
        seconds=float(np.sum(seconds)),
        compile_seconds=max(0.0, seconds[0] - typical),
    )


def _single(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32) if eqx.is_inexact_array(a) else a, tree)


@eqx.filter_jit
def run_epoch(
    params: PyTree,
    state: optax.OptState,
    fixed: PyTree,
    loss: PointLoss | BatchLoss,
    augment: Augment | None,
    settings: TrainingSettings,
    train: PyTree[Float[Array, "m ..."]],
    validation: PyTree[Float[Array, "m_validation ..."]],
    key: PRNGKeyArray,
) -> tuple[PyTree, optax.OptState, tuple[Float[Array, ""], Float[Array, ""]]]:
    """One pass over the shuffled training set, then the validation loss. A remainder smaller than a batch waits."""
    # The optimiser works on one flat vector: its update is then one fused loop instead of several per array.
    flat, unravel = ravel_pytree(params)
    m = len(train[0])
    optimiser = settings.optimiser(m)

    def point_loss(vector: Any, theta: Any, x: Any) -> Any:
        return cast(PointLoss, loss)(eqx.combine(unravel(vector), fixed), theta, x)

    def batch_loss(vector: Any, batch: Any, key: Any) -> Any:
        if isinstance(loss, BatchLoss):
            return loss(eqx.combine(unravel(vector), fixed), batch[0], batch[1], key)
        return jax.vmap(point_loss, (None, 0, 0))(vector, *batch).mean()

    def step(carry, inputs):
        (vector, state), (number, batch_key, (theta, x)) = carry, inputs
        if augment is not None:
            x = augment(jax.random.fold_in(key, number), x)
        value, gradient = jax.value_and_grad(batch_loss)(vector, (theta, x), batch_key)
        updates, state = optimiser.update(gradient, state, vector)
        return (vector + updates, state), value

    size = min(settings.batch_size, m)
    order = jax.random.permutation(key, m)[: m - m % size]
    batches = jax.tree.map(lambda a: a[order].reshape(-1, size, *a.shape[1:]), train)
    keys = jax.random.split(jax.random.fold_in(key, 0), m // size)
    (flat, state), losses = jax.lax.scan(step, (flat, state), (jnp.arange(m // size), keys, batches))
    if isinstance(loss, BatchLoss):
        held_out = batch_loss(flat, validation, jax.random.key(0))
    else:
        chunk = min(_VALIDATION_CHUNK, len(validation[0]))
        held_out = jax.lax.map(lambda point: point_loss(flat, *point), validation, batch_size=chunk)
    return unravel(flat), state, (losses.mean(), held_out.mean())
