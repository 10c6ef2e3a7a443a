"""Training of a network on simulations: minibatches, early stopping, one jitted scan per epoch."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from tqdm.auto import tqdm

from nsmbayes._internal.caller import warn_user
from nsmbayes.errors import InputError, TrainingError
from nsmbayes.surrogates import Standardiser, Trend
from nsmbayes.training.settings import TrainingSettings
from nsmbayes.training.stream import Stream

_VALIDATION_CHUNK = 8192
_FIXED = (Standardiser, Trend)  # parts of a model that are not trained

Model = TypeVar("Model", bound=eqx.Module)
Augment = Callable[[PRNGKeyArray, Float[Array, "size d_x"]], Float[Array, "size d_seen"]]
PointLoss = Callable[[Any, Float[Array, " d_theta"], Float[Array, " d_x"]], Float[Array, ""]]


_final: ContextVar[bool] = ContextVar("interrupts_are_final", default=False)


@contextmanager
def interrupts_are_final() -> Iterator[None]:
    """In this context, Ctrl-C raises KeyboardInterrupt, for callers that cannot use a half-trained network."""
    token = _final.set(True)
    try:
        yield
    finally:
        _final.reset(token)


class BatchLoss(eqx.Module):
    """The loss of a whole batch, for objectives that are not a mean over simulations. Its arrays are not trained."""

    @abstractmethod
    def __call__(
        self, model: Any, theta: Float[Array, "batch d_theta"], x: Float[Array, "batch *x"], key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """The loss of a batch; `key` changes in every step, but is always the same for the validation set."""


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
    stream: Stream | None = None,
    devices: Sequence[Any] | None = None,
    progress: bool = True,
) -> tuple[Model, TrainingHistory]:
    """Minimise the mean of `loss(model, theta_i, x_i)` over simulations; return the best model on held-out simulations.

    With `augment`, the loss gets augment(key, x) instead of x, with a new key in every batch and a fixed key for the
    held-out simulations. With a `BatchLoss`, minimise the loss of random batches instead. With `stream`, use its
    simulations instead of `theta` and `x`. With several `devices`, each has a part of every batch, and a copy of the
    model.

    All parts of `model` except its standardisers and trend are trained, in float32. Ctrl-C ends training and keeps the
    best weights so far, with a warning; within `interrupts_are_final`, KeyboardInterrupt is raised instead.
    """
    key, key_split = jax.random.split(key)
    mesh = _mesh(devices, settings)
    data = (
        _InMemory(theta, x, settings, key_split, augment) if stream is None else _InBlocks(stream, key_split, augment)
    )
    params, frozen = eqx.partition(model, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, _FIXED))
    params, fixed = _single(params), _single(frozen)
    state = settings.optimiser(data.m).init(ravel_pytree(params)[0])
    best, best_loss, best_epoch = params, np.inf, -1
    history: list[tuple[float, float]] = []
    seconds: list[float] = []
    stopped = Stopped.MAX_EPOCHS
    bar = tqdm(total=settings.max_epochs, desc="training", unit="epoch", disable=not progress, leave=True)
    try:
        for epoch in range(settings.max_epochs):
            start = time.perf_counter()
            params, state, losses = data.run_epoch(
                params, state, fixed, loss, augment, settings, jax.random.fold_in(key, epoch), epoch, mesh
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
        warn_user(
            f"Training was interrupted after {len(history)} of at most {settings.max_epochs} epochs: the best weights "
            "so far were kept, and posteriors of this network will say so. Call train() again to train it fully.",
        )
    finally:
        bar.close()
    if best_epoch < 0:
        raise TrainingError(
            "The validation loss was never finite: no weights can be preferred to those that training began with. Look "
            "for extreme simulations, and raise `validation_fraction` if there are few."
        )
    if mesh is not None:
        best = jax.tree.map(np.asarray, best)  # moves the weights from the devices to the host
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


def held_out_rows(key: PRNGKeyArray, m: int, settings: TrainingSettings) -> Int[np.ndarray, " k"]:
    """The rows, among m simulations in memory, that `fit` holds out with the same key and settings."""
    return _split_rows(jax.random.split(key)[1], m, settings)[0]


def _split_rows(
    key: PRNGKeyArray, m: int, settings: TrainingSettings
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " rest"]]:
    """The held-out rows, and the rows to train on."""
    m_validation = max(1, round(m * settings.validation_fraction))
    if m - m_validation < 1:
        raise InputError(f"`theta` needs at least 2 simulations, one to train on and one to validate; got {m}.")
    order = np.asarray(jax.random.permutation(key, m))
    return order[:m_validation], order[m_validation:]


Losses = tuple[Float[Array, ""], Float[Array, ""]]


def _mesh(devices: Sequence[Any] | None, settings: TrainingSettings) -> Mesh | None:
    """A mesh of the devices; None for a single device."""
    if devices is None or len(devices) == 1:
        return None
    if not len(devices) or settings.batch_size % len(devices):
        raise InputError(
            f"`devices`: a batch of {settings.batch_size} cannot be divided among {len(devices)} devices. Choose a "
            "`batch_size` that is a multiple of their number."
        )
    return Mesh(np.asarray(devices), ("data",))


class _InMemory:
    """Simulations in the memory of the device, split into training and held-out simulations."""

    def __init__(self, theta: Any, x: Any, settings: TrainingSettings, key: PRNGKeyArray, augment: Augment | None):
        split = _split_rows(key, len(theta), settings)
        validation, self.train = (tuple(jnp.asarray(a[rows], jnp.float32) for a in (theta, x)) for rows in split)
        if augment is not None:
            validation = validation[0], augment(jax.random.fold_in(key, 1), validation[1])
        self.validation, self.m = validation, len(split[1])

    def run_epoch(
        self,
        params: PyTree,
        state: Any,
        fixed: PyTree,
        loss: Any,
        augment: Any,
        settings: Any,
        key: Any,
        _: int,
        mesh: Any,
    ) -> tuple[PyTree, optax.OptState, Losses]:
        """One pass over the shuffled training set, then the validation loss."""
        return run_epoch(params, state, fixed, loss, augment, settings, self.train, self.validation, key, mesh)


class _InBlocks:
    """Simulations that are read in blocks."""

    def __init__(self, stream: Stream, key: PRNGKeyArray, augment: Augment | None):
        self.stream, self.key, self.augment, self.m = stream, key, augment, stream.m

    def run_epoch(
        self,
        params: PyTree,
        state: Any,
        fixed: PyTree,
        loss: Any,
        augment: Any,
        settings: Any,
        key: Any,
        epoch: int,
        mesh: Any,
    ) -> tuple[PyTree, optax.OptState, Losses]:
        """One pass over the training blocks, then the validation loss over the held-out blocks."""
        sums = np.zeros((2, 2))  # of training and validation: losses times weights, and weights
        for number, block in enumerate(self.stream.training(epoch)):
            if steps := len(block[0]) // min(settings.batch_size, self.m):  # a remainder below a batch is skipped
                own = jax.random.fold_in(key, number)
                params, state, value = _run_block(
                    params, state, fixed, loss, augment, settings, block, own, self.m, mesh
                )
                sums[0] += float(value) * steps, steps
        for number, (t, z) in enumerate(self.stream.held_out()):
            seen = z if self.augment is None else self.augment(jax.random.fold_in(self.key, number), jnp.asarray(z))
            sums[1] += float(_held_out(params, fixed, loss, (t, seen))) * len(t), len(t)
        return params, state, tuple(jnp.asarray(sums[:, 0] / sums[:, 1]))


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
    mesh: Mesh | None = None,
) -> tuple[PyTree, optax.OptState, Losses]:
    """One pass over the shuffled training set, then the validation loss. A remainder below a batch is skipped."""
    params, state, value = _pass(params, state, fixed, loss, augment, settings, train, key, len(train[0]), mesh)
    return params, state, (value, _validate(params, fixed, loss, validation))


def _pass(
    params: PyTree,
    state: optax.OptState,
    fixed: PyTree,
    loss: PointLoss | BatchLoss,
    augment: Augment | None,
    settings: TrainingSettings,
    train: PyTree[Float[Array, "rows ..."]],
    key: PRNGKeyArray,
    m: int,
    mesh: Mesh | None,
) -> tuple[PyTree, optax.OptState, Float[Array, ""]]:
    """One pass over shuffled simulations: all or some of the m simulations of an epoch."""
    # The optimiser works on one flat vector, so that its update is one fused loop instead of several per array.
    flat, unravel = ravel_pytree(params)
    optimiser, rows = settings.optimiser(m), len(train[0])

    def step(carry, inputs):
        (vector, state), (number, batch_key, (theta, x)) = carry, inputs
        if augment is not None:
            x = augment(jax.random.fold_in(key, number), x)
        value, gradient = jax.value_and_grad(lambda v: _batch_loss(unravel(v), fixed, loss, (theta, x), batch_key))(
            vector
        )
        updates, state = optimiser.update(gradient, state, vector)
        return (vector + updates, state), value

    size = min(settings.batch_size, m)
    order = jax.random.permutation(key, rows)[: rows - rows % size]
    batches = jax.tree.map(lambda a: a[order].reshape(-1, size, *a.shape[1:]), train)
    if mesh is not None:
        batches = jax.lax.with_sharding_constraint(batches, NamedSharding(mesh, PartitionSpec(None, "data")))
    keys = jax.random.split(jax.random.fold_in(key, 0), rows // size)
    (flat, state), losses = jax.lax.scan(step, (flat, state), (jnp.arange(rows // size), keys, batches))
    return unravel(flat), state, losses.mean()


def _validate(params: PyTree, fixed: PyTree, loss: PointLoss | BatchLoss, validation: Any) -> Float[Array, ""]:
    """The mean loss of held-out simulations."""
    if isinstance(loss, BatchLoss):
        return _batch_loss(params, fixed, loss, validation, jax.random.key(0))
    chunk = min(_VALIDATION_CHUNK, len(validation[0]))
    return jax.lax.map(lambda point: loss(eqx.combine(params, fixed), *point), validation, batch_size=chunk).mean()


def _batch_loss(params: PyTree, fixed: PyTree, loss: Any, batch: Any, key: PRNGKeyArray) -> Float[Array, ""]:
    model = eqx.combine(params, fixed)
    if isinstance(loss, BatchLoss):
        return loss(model, batch[0], batch[1], key)
    return jax.vmap(lambda theta, x: loss(model, theta, x))(*batch).mean()


_run_block, _held_out = eqx.filter_jit(_pass), eqx.filter_jit(_validate)
