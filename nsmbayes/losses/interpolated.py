"""The loss of NSM-Bayes by sufficient statistics: scores are interpolated between a few reference parameters.

Around a posterior, the score of a surrogate, as a function of y, changes little and smoothly with theta. So it is a
combination of the scores at a few dozen reference parameters, s(y | theta) = sum_k c_k(theta) s(y | theta_k). The
coefficients follow from the scores at a few design points, by least squares (empirical interpolation, Barrault, Maday,
Nguyen and Patera 2004). At each noise level the loss of a data set is then c' A c + 2 c' B, with

    A = sum_i w_i^2 S_i S_i',   B = sum_i S_i grad(w_i^2) + w_i^2 lap S_i,

where S_i are the scores of the references at noisy observation i. A and B are sums over the observations. For a new
theta, the surrogate is evaluated at the design points only, so it costs the same for ten observations as for a million.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import sparse

from nsmbayes._internal.parallel import call_each, in_threads, map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses.evaluated import Loss, NSMLoss, NSMSetting
from nsmbayes.losses.noise_levels import level_coefficients
from nsmbayes.losses.pointwise import nsm
from nsmbayes.surrogates import Derivatives, Frame, MixtureDensity, Surrogate

_REFERENCES, _FEW_REFERENCES = 64, 32  # number of references with several columns, and with one
_OVERSAMPLED = 2.0  # equations per coefficient
_TOLERANCE = 1e-4  # directions with smaller singular values, relative to the largest, are left out
_TYPICAL = 300  # draws of the surrogate from which design points are chosen
_THETAS = 64  # thetas whose losses are computed by one matrix product
_AT_ONCE = 16  # references in one compiled call
_WIDE, _WIDEST = 0.15, 4.5  # fraction of these draws that are moved outwards, and the largest factor


class Interpolation(eqx.Module):
    """The map from scores at design points to coefficients of the references; `references` are in the prior's space."""

    surrogate: MixtureDensity
    frame: Frame
    references: Float[Array, "k d_theta"]
    sizes: Float[Array, "levels k"]
    """The number by which the score of each reference is divided."""
    design: Float[Array, "levels m d_x"]
    projector: Float[Array, "levels k entries"]
    noise_levels: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    @double_precision
    def fit(
        cls,
        setting: NSMSetting,
        candidates: Float[np.ndarray, "n d_theta"],
        models: Float[np.ndarray, "m d_theta"],
        seed: int,
    ) -> "Interpolation":
        """Choose references among `candidates`, and design points among and around draws of the surrogate at `models`.

        The references are chosen so that all candidates are combinations of them (pivoted QR decomposition of their
        scores, at all levels together), and the design points so that they distinguish such combinations.
        """
        rng, h, density = np.random.default_rng(seed), np.asarray(setting.noise_levels), setting.surrogate
        assert isinstance(density, MixtureDensity)  # checked by the methods
        drawn = density.draw(models, -(-_TYPICAL // len(models)), rng)
        y = setting.coordinates(drawn.reshape(-1, drawn.shape[2])[:_TYPICAL])
        wide = np.where(rng.random((len(y), 1)) < _WIDE, _WIDEST ** rng.random((len(y), 1)), 1.0)
        pool = wide * y + h[:, None, None] * rng.standard_normal((len(h), *y.shape))
        w = np.stack([np.sqrt(setting.weigh(at, float(level))[0]) for at, level in zip(pool, h, strict=True)])
        scores = _derivatives(setting.surrogate, setting.frame, candidates, h, pool)[0]
        weighted = (w[..., None] * scores).reshape(*scores.shape[:2], -1)
        usable = np.isfinite(weighted).all(axis=(1, 2))
        if not usable.any():
            raise ConvergenceError("The scores of the surrogate are not finite at any parameter near the posterior.")
        candidates, weighted = candidates[usable], weighted[usable]
        squares = (weighted**2).mean(axis=2)
        counts = level_coefficients(h)
        in_nats = np.sqrt(counts / (1 + (squares @ counts)[:, None]))  # makes candidates that explain nothing small
        angles = (in_nats[..., None] * weighted).reshape(len(candidates), -1)
        values, vectors = np.linalg.eigh(angles @ angles.T)  # the same angles between much shorter vectors
        count = _FEW_REFERENCES if y.shape[1] == 1 else _REFERENCES
        [chosen] = _pivots((vectors * np.sqrt(np.maximum(values, 0)))[None], min(count, len(candidates)))
        sizes = np.sqrt(squares[chosen]).T
        bases = np.swapaxes(weighted[chosen], 0, 1) / sizes[..., None]
        points, projector = _design(bases, w, y.shape[1])
        design = np.take_along_axis(pool, points[..., None], axis=1)
        references, sizes, design, projector = map(jnp.asarray, (candidates[chosen], sizes, design, projector))
        return cls(density, setting.frame, references, sizes, design, projector, noise_levels=setting.noise_levels)

    def coefficients(self, theta: Float[Array, " d_theta"]) -> Float[Array, "levels k"]:
        """c(theta) at each noise level."""
        levels = jnp.asarray(self.noise_levels, self.design.dtype)
        if self.design.shape[2] == 1:
            scores = self.surrogate.in_frame(theta, self.frame).line_scores(levels, self.design[..., 0])
            return jnp.einsum("lkm,lm->lk", self.projector, scores)
        scores = jax.vmap(lambda h, y: self.surrogate.derivatives_at(theta, self.frame, h)(y).score)(
            levels, self.design
        )
        return jnp.einsum("lkm,lm->lk", self.projector, scores.reshape(len(levels), -1))

    @double_precision
    def features(self, loss: NSMLoss) -> tuple[np.ndarray, np.ndarray]:
        """Score and Laplacian of every reference at the points of a loss: (k, groups, points, d), (k, groups, points).

        Both are divided by `sizes`.
        """
        at = (np.asarray(self.references), np.asarray(loss.h)[:, 0], np.asarray(loss.y))
        score, laplacian = _derivatives(self.surrogate, self.frame, *at)
        sizes = np.moveaxis(np.asarray(self.sizes)[self.level_of(loss)], 2, 0)
        return score / sizes[..., None], laplacian / sizes

    def level_of(self, loss: NSMLoss) -> Int[np.ndarray, "groups points"]:
        """The index of the noise level of each point."""
        return np.broadcast_to(np.searchsorted(self.noise_levels, np.asarray(loss.h)), loss.w2.shape)


class Sums(NamedTuple):
    """The sufficient statistics of a data set: A (levels, k, k) and B (levels, k)."""

    A: Float[np.ndarray, "levels k k"]
    B: Float[np.ndarray, "levels k"]

    def __add__(self, other: "Sums") -> "Sums":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Sums(self.A + other.A, self.B + other.B)


class RowLosses(eqx.Module):
    """The losses of some observations, from the scores of the references at their noisy points."""

    loss: NSMLoss
    level: Int[Array, "groups points"]
    score: Float[Array, "k groups points d_x"]
    laplacian: Float[Array, "k groups points"]

    @classmethod
    @double_precision
    def of(cls, interpolation: Interpolation, loss: NSMLoss) -> "RowLosses":
        """The losses of the observations of `loss`."""
        score, laplacian = interpolation.features(loss)
        return cls(loss, *map(jnp.asarray, (interpolation.level_of(loss), score, laplacian)))

    def at(self, coefficients: Float[Array, "levels k"]) -> Float[Array, " n"]:
        """The loss of each observation, given the coefficients of a theta."""
        if len(self.level) == len(coefficients):  # a group is a level
            score = jnp.einsum("gk,kgpd->gpd", coefficients, self.score)
            laplacian = jnp.einsum("gk,kgp->gp", coefficients, self.laplacian)
        else:
            each = coefficients[self.level]
            score = jnp.einsum("gpk,kgpd->gpd", each, self.score)
            laplacian = jnp.einsum("gpk,kgp->gp", each, self.laplacian)
        losses = jax.vmap(jax.vmap(nsm))(Derivatives(score, laplacian), self.loss.w2, self.loss.grad_w2)
        return self.loss.by_observation(losses)

    def at_many(self, coefficients: Float[np.ndarray, "t levels k"]) -> Float[np.ndarray, "t n"]:
        """`at` for many thetas, by matrix products; one theta at a time would read all scores for each theta."""
        parts = np.array_split(coefficients, -(-len(coefficients) // _THETAS))
        return np.concatenate(in_threads(self._at_some, parts))

    def _at_some(self, coefficients: Float[np.ndarray, "t levels k"]) -> Float[np.ndarray, "t n"]:
        loss, level = self.loss, np.asarray(self.level)
        score, laplacian = np.asarray(self.score), np.asarray(self.laplacian)
        w2, gradient = np.asarray(loss.w2), np.asarray(loss.grad_w2)
        losses = np.zeros((len(coefficients), *level.shape))
        for number in range(coefficients.shape[1]):
            mine = level == number
            c = coefficients[:, number]
            s = (c @ score[:, mine].reshape(len(score), -1)).reshape(len(c), -1, score.shape[-1])
            whole = (s**2).sum(axis=2) + 2 * c @ laplacian[:, mine]
            losses[:, mine] = w2[mine] * whole + 2 * (s * gradient[mine]).sum(axis=2)
        return np.asarray(loss.overall) * (self._by_observation @ losses.reshape(len(losses), -1).T).T

    @property
    def _by_observation(self) -> sparse.csr_array:
        """The weight of each point for each observation."""
        index, weight = np.asarray(self.loss.node_index), np.asarray(self.loss.quadrature_weight)
        starts = np.arange(0, index.size + 1, index.shape[1])
        return sparse.csr_array((weight.ravel(), index.ravel(), starts), shape=(len(index), self.level.size))

    def sums(self, levels: int) -> Sums:
        """A and B of these observations."""
        loss, level = self.loss, np.asarray(self.level)
        score, laplacian = np.asarray(self.score), np.asarray(self.laplacian)
        counts, w2, gradient = (np.asarray(a) for a in (loss.total_weights, loss.w2, loss.grad_w2))
        A, B = np.zeros((levels, len(score), len(score))), np.zeros((levels, len(score)))
        for number in range(levels):
            mine = (level == number) & (counts != 0)
            s, weight = score[:, mine], (counts * w2)[mine]
            flat = s.reshape(len(s), -1)
            A[number] = (s * weight[:, None]).reshape(len(s), -1) @ flat.T
            B[number] = flat @ (counts[mine][:, None] * gradient[mine]).ravel() + laplacian[:, mine] @ weight
        return Sums(A, B)


@double_precision
def coefficients_at(interpolation: Interpolation, theta: Float[np.ndarray, "t d_theta"]) -> np.ndarray:
    """c(theta) for many thetas, shape (t, levels, k); on all cores."""
    return map_rows(_coefficients, theta, interpolation)


def _coefficients(theta: Float[Array, " d_theta"], interpolation: Interpolation) -> Float[Array, "levels k"]:
    return interpolation.coefficients(theta)


class InterpolatedLoss(Loss):
    """The loss of a data set from its sums, and the individual losses of some of its observations."""

    interpolation: Interpolation
    A: Float[Array, "levels k k"]
    B: Float[Array, "levels k"]
    rows: RowLosses | None = None

    @property
    def cheap(self) -> bool:
        """Whether the sum costs the same for any number of observations: always True."""
        return True

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """The sum of the losses of all observations."""
        return self.total(self.interpolation.coefficients(theta))

    def total(self, coefficients: Float[Array, "levels k"]) -> Float[Array, ""]:
        """The sum of the losses of all observations, given the coefficients of theta."""
        return ((jnp.einsum("lk,lkj->lj", coefficients, self.A) + 2 * self.B) * coefficients).sum()

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation in `rows`."""
        if self.rows is None:
            raise ValueError("This loss knows the sum over its observations only.")
        return self.rows.at(self.interpolation.coefficients(theta))


def _design(
    bases: Float[np.ndarray, "levels k entries"], roots: Float[np.ndarray, "levels m"], d: int
) -> tuple[Int[np.ndarray, "levels points"], Float[np.ndarray, "levels k some_entries"]]:
    """Points that distinguish the weighted scores of the references, and the map from scores to coefficients."""
    wanted = min(roots.shape[1], int(np.ceil(_OVERSAMPLED * bases.shape[1] / d)))
    axes = np.arange(d)
    points = []
    for order in _pivots(_orthonormal(bases), bases.shape[1]):
        order = np.concatenate([order // d, np.arange(roots.shape[1])])
        _, first = np.unique(order, return_index=True)
        points.append(order[np.sort(first)][:wanted])
    places = np.stack(points)
    entries = (places[..., None] * d + axes).reshape(len(places), -1)
    some = np.take_along_axis(bases, entries[:, None], axis=2)
    weights = np.repeat(np.take_along_axis(roots, places, axis=1), d, axis=1)
    return places, np.linalg.pinv(some.swapaxes(1, 2), rcond=_TOLERANCE) * weights[:, None]


def _orthonormal(bases: Float[np.ndarray, "levels k entries"]) -> Float[np.ndarray, "levels entries k"]:
    """Orthonormal columns with the same span as the rows, without directions far below the tolerance.

    They are computed from products of the rows. A QR decomposition would call LAPACK with long matrices, whose threads
    wait for one another on a busy machine.
    """
    values, vectors = np.linalg.eigh(bases @ bases.swapaxes(1, 2))
    kept = values > (0.01 * _TOLERANCE) ** 2 * values[:, -1:]
    return bases.swapaxes(1, 2) @ (vectors * np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)[:, None])


def _pivots(vectors: Float[np.ndarray, "sets n r"], count: int) -> list[Int[np.ndarray, " _"]]:
    """Indices of at most `count` vectors of each set whose span nearly contains the others.

    Each step adds the vector that is farthest from the span of the vectors before, until nothing is left.
    """
    left, squares = vectors.copy(), (vectors**2).sum(axis=2)
    axes = np.zeros((len(left), count, left.shape[2]))
    chosen, sets = np.full((len(left), count), -1), np.arange(len(left))
    smallest = 1e-20 * squares.max(axis=1)
    for number in range(count):
        farthest = squares.argmax(axis=1)
        axis = left[sets, farthest]
        for _ in range(2):  # once would leave rounding errors along the previous axes
            axis = axis - ((axes[:, :number] @ axis[..., None]).swapaxes(1, 2) @ axes[:, :number])[:, 0]
        lengths = (axis**2).sum(axis=1)
        there = (squares[sets, farthest] > smallest) & (lengths > 0)
        axes[:, number] = np.where(there[:, None], axis / np.sqrt(np.where(there, lengths, 1))[:, None], 0)
        chosen[:, number] = np.where(there, farthest, -1)
        squares -= (left @ axes[:, number, :, None])[..., 0] ** 2
        squares[sets, farthest] = -np.inf
    return [each[each >= 0] for each in chosen]


def _derivatives(
    surrogate: Surrogate,
    frame: Frame,
    theta: Float[np.ndarray, "n d_theta"],
    h: Float[np.ndarray, " groups"],
    y: Float[np.ndarray, "groups points d_x"],
) -> tuple[Float[np.ndarray, "n groups points d_x"], Float[np.ndarray, "n groups points"]]:
    """Scores (n, groups, points, d_x) and Laplacians (n, groups, points) at many thetas; on all cores."""
    padded = np.concatenate([theta, np.repeat(theta[:1], -len(theta) % _AT_ONCE, axis=0)])
    parts = padded.reshape(-1, _AT_ONCE, theta.shape[1])
    found = call_each(_derivatives_at_some, [(part,) for part in parts], surrogate, frame, h, y)
    score, laplacian = (np.concatenate(each)[: len(theta)] for each in zip(*found, strict=True))
    return score, laplacian


def _derivatives_at_some(theta: Array, surrogate: Surrogate, frame: Frame, h: Array, y: Array) -> Derivatives:
    def one(t: Float[Array, " d_theta"]) -> Derivatives:
        def group(level: Float[Array, ""], points: Float[Array, "points d_x"]) -> Derivatives:
            return surrogate.derivatives_at(t, frame, level)(points)

        return jax.vmap(group)(h, y)

    return jax.lax.map(one, theta)
