"""The minimum covariance determinant in two or more dimensions: many starts, concentration steps, exchanges.

The subset of h points whose covariance has the smallest determinant cannot be found by enumeration. Each start is
improved by concentration steps (Rousseeuw, Van Driessen 1999): keep the h points nearest in the current metric. When
these converge, single points are exchanged across the boundary as long as the determinant decreases (Hawkins 1994).
Starts from a few points, or from deterministic metrics, handle clusters of outliers on which random halves fail;
exchanges escape the local minima of the concentration steps.

Arrays have shape (b, s, ...): datasets, then starts. Points are columns (d, n): matrix products run along n.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from nsmbayes.scatter._consistency import TAIL, consistency_factor, small_sample_cutoff, support_size

_FINALISTS = 10
_SEARCH_STEPS = 2
_MAX_STEPS = 100
_MAX_EXCHANGES = 500
_MAX_GROWTH = 20
# Useful exchanges involve points near the boundary of the subset.
_BOUNDARY = 24
# With more points, the search runs on a sample of this size; only its best subsets are refined on all points.
_SAMPLE = 5000
# Datasets are processed together until an array of one step has this many entries: more would not fit into the cache.
_CHUNK = 400_000
_GAIN = 1e-9
_SINGULAR = 1e-12
# A conditional variance below this fraction of the variance is rounding error.
_PRECISION = 1e-14
# In standardised units every variance of the bulk is smaller.
_BULK = 1e8

Points = Float[np.ndarray, "b d n"]
Subset = Float[np.ndarray, "b s n"]
Centres = Float[np.ndarray, "b s d"]
Shapes = Float[np.ndarray, "b s d d"]


def mcd_space(
    z: Float[np.ndarray, "b n d"],
    rng: np.random.Generator,
    starts: int,
    warm: tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d d"]] | None = None,
) -> tuple[Float[np.ndarray, "b d d"], Bool[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Reweighted scatters of standardised datasets, whether they are regular, and log det of the raw covariances.

    `warm` is a location and scatter per dataset, used as an additional start. All datasets use the same random choices,
    so the result for one does not depend on the others.
    """
    b, n, d = z.shape
    elements = rng.integers(n, size=(starts, d + 1))
    sample = rng.permutation(n)[:_SAMPLE] if n > _SAMPLE else np.arange(n)
    per_chunk = max(1, _CHUNK // (len(sample) * d * (starts + 4)))
    scatter, regular, log_det = np.empty((b, d, d)), np.empty(b, dtype=bool), np.empty(b)
    for begin in range(0, b, per_chunk):
        rows = slice(begin, begin + per_chunk)
        points = np.ascontiguousarray(np.swapaxes(z[rows], 1, 2))
        chunk_warm = None if warm is None else (warm[0][rows, None], warm[1][rows, None])
        centre, shape, log_det[rows] = _raw(points, elements % len(sample), sample, chunk_warm)
        scatter[rows], regular[rows] = _reweighted(points, centre, shape)
    return scatter, regular, log_det


def _raw(
    points: Points,
    elements: Int[np.ndarray, "starts k"],
    sample: Int[np.ndarray, " m"],
    warm: tuple[Centres, Shapes] | None,
) -> tuple[Centres, Shapes, Float[np.ndarray, " b"]]:
    """Mean and covariance (b, 1, ...) of the best subset found."""
    d, n = points.shape[1:]
    h, m = support_size(n, d), len(sample)
    seen = points if m == n else np.ascontiguousarray(points[:, :, sample])
    h_seen = -(-m * h // n)
    centre, shape = _starts(seen, elements, h_seen)
    if warm is not None:
        centre, shape = np.concatenate([centre, warm[0]], axis=1), np.concatenate([shape, warm[1]], axis=1)
    subset = _nearest(seen, centre, shape, h_seen)
    for _ in range(_SEARCH_STEPS - 1):
        subset = _nearest(seen, *_moments(seen, subset, h_seen), h_seen)
    subset, log_det = _concentrate(seen, _best(seen, subset, h_seen, _FINALISTS), h_seen)
    subset, log_det = _exchange(seen, subset, log_det, h_seen)
    if m < n:
        finalists = _best(seen, subset, h_seen, 2)
        subset, log_det = _concentrate(points, _nearest(points, *_moments(seen, finalists, h_seen), h), h)
    winner = log_det.argmin(axis=1)[:, None]
    centre, shape = _moments(points, np.take_along_axis(subset, winner[..., None], axis=1), h)
    return centre, shape, np.take_along_axis(log_det, winner, axis=1)[:, 0]


def _reweighted(
    points: Points, centre: Centres, shape: Shapes
) -> tuple[Float[np.ndarray, "b d d"], Bool[np.ndarray, " b"]]:
    """The consistent covariance of all points that are not outliers, starting from the raw estimate.

    With few points per column, the raw estimate fits its own subset too well, and by the quantiles of large samples
    many good points outside the subset would be called outliers. So the set grows in steps until it does not change:
    the distance of each point from the mean of the others in the set, in the metric of their covariance, is compared
    with the quantile of exactly this distance.
    """
    d, n = points.shape[1:]
    h = support_size(n, d)
    raw = shape * consistency_factor(d, h / n) * h / (h - 1)
    distance = _distances(points, centre, raw)[:, 0]
    nearest = np.partition(distance, h - 1, axis=1)[:, h - 1 : h]
    inside = (distance <= nearest) | (distance < small_sample_cutoff(d, np.asarray(float(h))))
    scatter = np.empty((len(points), d, d))
    moving = np.arange(len(points))
    for _ in range(_MAX_GROWTH):
        own, kept = points[moving], inside[moving]
        m = kept.sum(axis=1).astype(float)[:, None]
        middle, spread = _moments(own, kept[:, None].astype(float), m)
        spread = spread * (m / (m - 1) * consistency_factor(d, 1 - TAIL))[..., None, None]
        scatter[moving] = spread[:, 0]
        distance = _distances(own, middle, spread)[:, 0]
        left_out = (m - 2) / (m - 1) * (m / (m - 1)) ** 2 * distance
        left_out = left_out / np.maximum(1 - m * distance / (m - 1) ** 2, 1e-9)
        grown = np.where(kept, left_out < small_sample_cutoff(d, m - 1), distance < small_sample_cutoff(d, m))
        changed = (grown != kept).any(axis=1) & (grown.sum(axis=1) >= h)
        moving = moving[changed]
        inside[moving] = grown[changed]
        if not moving.size:
            break
    regular = is_regular(shape[:, 0]) & is_regular(scatter)
    return scatter, regular


def is_regular(scatter: Float[np.ndarray, "b d d"]) -> Bool[np.ndarray, " b"]:
    """Whether the correlation matrices are positive definite beyond rounding."""
    variance = np.diagonal(scatter, axis1=1, axis2=2)
    spread = np.sqrt(np.where(variance > 0, variance, 1))
    correlation = scatter / spread[:, :, None] / spread[:, None, :]
    return (variance > 0).all(axis=1) & (np.linalg.eigvalsh(correlation)[:, 0] > _SINGULAR)


def _starts(points: Points, elements: Int[np.ndarray, "starts k"], h: int) -> tuple[Centres, Shapes]:
    """Moments of d + 1 random points per start, and three deterministic metrics (after Hubert et al. 2012)."""
    d = points.shape[1]
    chosen = points[:, :, elements].transpose(0, 2, 1, 3)
    centre = chosen.mean(axis=3)
    chosen = chosen - centre[..., None]
    shape = chosen @ chosen.swapaxes(2, 3) / (d + 1)
    norm = np.sqrt((points**2).sum(axis=1, keepdims=True))
    signs = points / np.where(norm > 0, norm, 1)
    squashed = np.tanh(points)
    squashed = squashed - squashed.mean(axis=2, keepdims=True)
    axes = np.linalg.eigh(np.stack([signs @ signs.swapaxes(1, 2), squashed @ squashed.swapaxes(1, 2)], axis=1))[1]
    axes = np.concatenate([np.broadcast_to(np.eye(d), axes[:, :1].shape), axes], axis=1)
    along = axes.swapaxes(2, 3) @ points[:, None]
    middle = np.median(along, axis=3)
    width = np.partition(np.abs(along - middle[..., None]), h - 1, axis=3)[..., h - 1]
    centre = np.concatenate([centre, (axes @ middle[..., None])[..., 0]], axis=1)
    return centre, np.concatenate([shape, (axes * width[..., None, :] ** 2) @ axes.swapaxes(2, 3)], axis=1)


def _moments(points: Points, subset: Subset, size: Any) -> tuple[Centres, Shapes]:
    """Mean and covariance of the points in each subset; `size` is their number."""
    size = np.asarray(size, dtype=float)
    centre = subset @ points.swapaxes(1, 2) / size[..., None]
    offset = points[:, None] - centre[..., None]
    return centre, (offset * subset[:, :, None]) @ offset.swapaxes(2, 3) / size[..., None, None]


def _inverse_factor(shape: Shapes) -> tuple[Shapes, Float[np.ndarray, "b s"]]:
    """L⁻¹ of shape = L Lᵀ, and log det shape.

    A singular shape has log det -∞, the smallest possible, and its pivots are raised slightly so that L⁻¹ is finite. A
    shape that is singular only by rounding, because far outliers are among its points, has log det ∞ and is excluded.
    """
    d = shape.shape[-1]
    rest, inverse = shape.copy(), np.broadcast_to(np.eye(d), shape.shape).copy()
    variance = np.diagonal(shape, axis1=2, axis2=3)
    floor = np.maximum(_PRECISION * variance, 1e-20)
    pivots = np.empty(shape.shape[:3])
    for j in range(d):
        pivot = pivots[..., j] = np.maximum(rest[..., j, j], floor[..., j])
        multiplier = rest[..., j + 1 :, j] / pivot[..., None]
        rest[..., j + 1 :, j + 1 :] -= multiplier[..., None] * rest[..., None, j + 1 :, j]
        inverse[..., j + 1 :, :] -= multiplier[..., None] * inverse[..., None, j, :]
        inverse[..., j, :] /= np.sqrt(pivot)[..., None]
    lost = pivots <= floor
    log_det = np.where(lost.any(axis=2), -np.inf, np.log(pivots).sum(axis=2))
    return inverse, np.where((lost & (variance > _BULK)).any(axis=2), np.inf, log_det)


def _whiten(points: Points, centre: Centres, shape: Shapes) -> tuple[Float[np.ndarray, "b s d n"], Any]:
    inverse, log_det = _inverse_factor(shape)
    return inverse @ (points[:, None] - centre[..., None]), log_det


def _distances(points: Points, centre: Centres, shape: Shapes) -> Float[np.ndarray, "b s n"]:
    return (_whiten(points, centre, shape)[0] ** 2).sum(axis=2)


def _nearest(points: Points, centre: Centres, shape: Shapes, h: int) -> Subset:
    """The h points nearest in each metric. Points tied at the boundary get equal fractional weights."""
    distance = _distances(points, centre, shape)
    reach = np.partition(distance, h - 1, axis=2)[..., h - 1 : h]
    nearer, level = distance < reach, distance == reach
    share = (h - nearer.sum(axis=2, keepdims=True)) / level.sum(axis=2, keepdims=True)
    return nearer + level * share


def _best(points: Points, subset: Subset, h: int, count: int) -> Float[np.ndarray, "b k n"]:
    log_det = _inverse_factor(_moments(points, subset, h)[1])[1]
    ranks = log_det.argsort(axis=1)[:, :count]
    return np.take_along_axis(subset, ranks[..., None], axis=1)


def _concentrate(points: Points, subset: Subset, h: int) -> tuple[Subset, Float[np.ndarray, "b s"]]:
    """Concentration steps until the determinant stops decreasing; also log det of each subset's covariance."""
    b, s, n = subset.shape
    owner = np.repeat(np.arange(b), s)
    subset, log_det = subset.reshape(b * s, 1, n).copy(), np.full(b * s, np.inf)
    moving = np.arange(b * s)
    for _ in range(_MAX_STEPS):
        own = points[owner[moving]]
        centre, shape = _moments(own, subset[moving], h)
        value = _inverse_factor(shape)[1][:, 0]
        falls = value < log_det[moving] - _GAIN
        log_det[moving] = value
        moving = moving[falls]
        if not moving.size:
            break
        subset[moving] = _nearest(own[falls], centre[falls], shape[falls], h)
    return subset.reshape(b, s, n), log_det.reshape(b, s)


def _exchange(
    points: Points, subset: Subset, log_det: Float[np.ndarray, "b s"], h: int
) -> tuple[Subset, Float[np.ndarray, "b s"]]:
    """Swap one point of each subset for one outside as long as the determinant decreases."""
    b, s, n = subset.shape
    m = min(_BOUNDARY, n - h)
    owner = np.repeat(np.arange(b), s)
    inside = np.zeros((b * s, n), dtype=bool)
    np.put_along_axis(inside, np.argsort(-subset, axis=2, kind="stable")[..., :h].reshape(b * s, h), True, axis=1)
    moving = np.flatnonzero(_worth_improving(log_det))
    log_det = log_det.reshape(b * s).copy()
    for _ in range(_MAX_EXCHANGES):
        if not moving.size:
            break
        own, kept = points[owner[moving]], inside[moving]
        white, value = _whiten(own, *_moments(own, kept[:, None].astype(float), h))
        white, log_det[moving] = white[:, 0], value[:, 0]
        distance = (white**2).sum(axis=1)
        leaver = np.argpartition(np.where(kept, -distance, np.inf), m - 1, axis=1)[:, :m]
        joiner = np.argpartition(np.where(kept, np.inf, distance), m - 1, axis=1)[:, :m]
        ratio = _determinant_ratio(
            np.take_along_axis(white, leaver[:, None], axis=2),
            np.take_along_axis(white, joiner[:, None], axis=2),
            h,
        )
        pick = ratio.reshape(len(moving), -1).argmin(axis=1)
        gain = ratio.reshape(len(moving), -1)[np.arange(len(moving)), pick]
        falls = np.flatnonzero((gain < 1 - _GAIN) & np.isfinite(value[:, 0]))
        moving, pick = moving[falls], pick[falls]
        inside[moving, leaver[falls, pick // m]] = False
        inside[moving, joiner[falls, pick % m]] = True
    return inside.reshape(b, s, n).astype(float), log_det.reshape(b, s)


def _worth_improving(log_det: Float[np.ndarray, "b s"]) -> Bool[np.ndarray, "b s"]:
    """Which subsets to improve: each distinct one once, and none if a singular one has been found."""
    ranks = log_det.argsort(axis=1)
    ordered = np.take_along_axis(log_det, ranks, axis=1)
    worth = np.isfinite(ordered) & np.isfinite(ordered[:, :1])
    step = np.diff(np.where(worth, ordered, 0), axis=1)
    worth[:, 1:] &= step > _GAIN
    scattered = np.empty_like(worth)
    np.put_along_axis(scattered, ranks, worth, axis=1)
    return scattered


def _determinant_ratio(
    leaver: Float[np.ndarray, "p d m"], joiner: Float[np.ndarray, "p d m"], h: int
) -> Float[np.ndarray, "p m m"]:
    """det after / det before an exchange: a point of the subset leaves (rows) and one from outside joins (columns).

    Points are centred and whitened by the subset's covariance. With a, j and c their squared lengths and inner product
    divided by h, the ratio is (1 - a)(1 + j) + c² - (a + j - 2c)/h.
    """
    c = leaver.swapaxes(1, 2) @ joiner / h
    a = ((leaver**2).sum(axis=1) / h)[:, :, None]
    j = ((joiner**2).sum(axis=1) / h)[:, None, :]
    return (1 - a) * (1 + j) + c**2 - (a + j - 2 * c) / h
