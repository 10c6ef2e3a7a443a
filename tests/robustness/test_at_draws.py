"""Influence at the draws: bounds for all places of an observation, against brute force over many of them."""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from support.builders import data, general, mdn
from support.known_mixtures import skewed_data, skewed_prior, with_density

import nsmbayes as nsm
from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.corrected import uncorrected
from nsmbayes.losses.interpolated import RowLosses, coefficients_at
from nsmbayes.losses.noise_levels import lattice_offsets, lattice_step
from nsmbayes.priors import constrain_rows
from nsmbayes.robustness import AtDraws, Certificate, at_draws
from nsmbayes.robustness.bounds.components import Components, combination_range, mixture_range
from nsmbayes.robustness.bounds.growth import Metric, metric
from nsmbayes.robustness.bounds.line_places import FOURTH, Line, Places
from nsmbayes.robustness.bounds.weights import weight_bounds
from nsmbayes.samplers import each_loss
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.weights import IMQ, PlateauIMQ

CUT = PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=6.0)
LEVELS = (0.2, 0.4, 1.0)  # boundaries of the lattices of the first two never coincide, of the last two sometimes


def draws(seed=0, count=60):
    """As narrow as those of a posterior of some observations."""
    return 0.2 * np.random.default_rng(seed).standard_normal((1, count, 2))


@functools.cache
def line(*, whiten=True, seed=0, count=60):
    return general(mdn(1), CUT, noise_levels=LEVELS, whiten=whiten, positions=draws(seed, count))


def parts(posterior):
    """The losses, the bounds of the weight and the metrics that a certificate is made from."""
    if hasattr(posterior, "summarised"):
        losses = [piece.block(0) for piece in posterior.summarised.pieces]
    else:
        losses = [uncorrected(posterior.target.loss)]
    weight, centre = posterior.setting.weighting
    found = [metric(centre, losses[0].frame, float(h)) for h in np.unique(np.asarray(losses[0].h))]
    return losses, weight_bounds(weight), found


def bound_of(posterior) -> AtDraws:
    found = at_draws.influence_at_draws(posterior, *parts(posterior))
    assert found is not None
    return found


@double_precision
def losses_of(posterior, x, positions):
    """(draws, n), by the posterior's own loss, written here again."""
    loss = posterior.setting.loss(x)
    if not hasattr(posterior, "summarised"):
        return each_loss(posterior.target._replace(loss=loss), positions)
    interpolation = posterior.summarised.loss.interpolation
    theta = constrain_rows(posterior.target.prior, positions)
    return RowLosses.of(interpolation, loss).at_many(coefficients_at(interpolation, theta))


def searched(posterior, x, multiple=1.0):
    """KL divergences and shifts of means, for all rows replaced by every x: (rows, places)."""
    positions = posterior.thinned(500 if x.shape[1] == 1 else 200)
    rows = posterior.row_losses(positions, np.arange(posterior.n))
    change = posterior.beta * (rows[:, :, None] - multiple * losses_of(posterior, x, positions)[:, None])
    theta = constrain_rows(posterior.target.prior, positions)
    z = (theta - theta.mean(axis=0)) / theta.std(axis=0)
    weights = np.exp(change - logsumexp(change, axis=0))
    kl = logsumexp(change, axis=0) - np.log(len(change)) - change.mean(axis=0)
    return kl, np.abs(np.einsum("srp,sd->rpd", weights, z)).max(axis=2)


def places(posterior, count, seed=0):
    """Many near the data, some far away."""
    rng, (location, scatter) = np.random.default_rng(seed), posterior.location_scatter
    y = rng.standard_normal((count, len(location)))
    y *= np.concatenate([rng.uniform(0, 8, count - count // 4), np.geomspace(8, 1e6, count // 4)])[:, None]
    return location + y @ np.linalg.cholesky(scatter).T


def test_lattices_have_the_fourth_moments_that_are_claimed():
    """Over all places between two lattice points, and sharply."""
    for u in np.linspace(-0.5, 0.5, 2001):
        t = lattice_step(1.0) * (lattice_offsets() - u)
        p = np.exp(-0.5 * t**2)
        p /= p.sum()
        square = (t - p @ t) ** 2
        assert 1.40 < np.sqrt(p @ square**2 - (p @ square) ** 2) < FOURTH - 0.01


@pytest.mark.parametrize("whiten", [True, False])
def test_no_loss_leaves_its_cell(x64, whiten):
    posterior = line(whiten=whiten)
    setting, positions = posterior.setting, posterior.thinned(20)
    cut = Line.of(setting, 9.0, lambda loss: each_loss(posterior.target._replace(loss=loss), positions))
    assert cut.reach == 9.0
    offset, basis = np.asarray(setting.frame.offset)[0], np.asarray(setting.frame.basis)[0, 0]
    centre = (np.asarray(setting.weighting.centre.location)[0] - offset) / basis
    y = centre + np.random.default_rng(0).uniform(-9, 9, 4000)
    values = losses_of(posterior, offset + basis * y[:, None], positions).T
    steps = [lattice_step(h) for h in LEVELS]
    ends = np.unique(np.concatenate([step * (np.arange(-400, 400) + 0.5) for step in steps]).round(9))
    inner = ends[(ends > centre - 9 + 1e-9) & (ends < centre + 9 - 1e-9)]
    np.testing.assert_allclose(cut.cells.high[:-1], inner, atol=1e-8)
    for cells in (cut.cells, cut.cells.split(3)):
        found, cell = cut.losses(cells), np.searchsorted(cells.high, y)
        off = np.abs(values - found.middle[cell])
        assert (off <= found.radius[cell]).all()
        assert (off > 0.9 * found.radius[cell]).any()  # a radius a tenth smaller would be wrong
    assert np.median(found.radius) < 0.1 * found.middle.std()


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_no_loss_of_a_point_leaves_its_range(x64, level):
    """For mixtures in three columns, and for combinations of their scores, near and far, from a distance on."""
    posterior = general(mdn(3), CUT, noise_levels=(level,) if level == 0 else (level, 1.0))
    setting, rng = posterior.setting, np.random.default_rng(0)
    theta = rng.standard_normal((6, 2))
    weight, centre = setting.weighting
    at = metric(centre, setting.frame, level)
    assert at is not None
    components = Components.of(setting.surrogate, setting.frame, np.asarray(centre.location), theta)
    y = rng.standard_normal((20_000, 3)) * np.geomspace(0.1, 1e4, 20_000)[:, None]
    w2, gradient = setting.weigh(y, level)
    distance = np.linalg.norm(y, axis=1) / at.stretch
    derivatives = [
        setting.surrogate.derivatives_at(jnp.asarray(t), setting.frame, level)(jnp.asarray(y)) for t in theta
    ]
    score, laplacian = (np.stack([np.asarray(each) for each in part]) for part in zip(*derivatives, strict=True))
    c = rng.standard_normal((10, 6))
    for beyond in (0.0, 3.0, 50.0):
        there = distance >= beyond
        bounds = components.at_level(at, weight_bounds(weight), beyond)
        for scores, laplacians, (low, high) in (
            (score, laplacian, mixture_range(bounds)),
            (np.einsum("tk,knd->tnd", c, score), c @ laplacian, combination_range(bounds, c)),
        ):
            loss = w2 * ((scores**2).sum(axis=2) + 2 * laplacians) + 2 * (scores * gradient).sum(axis=2)
            assert (loss[:, there] <= high[:, None]).all()
            assert (loss[:, there] >= -low[:, None]).all()
        if beyond == 0:  # bounds a thousand times too large would say nothing
            loss = w2 * ((score**2).sum(axis=2) + 2 * laplacian) + 2 * (score * gradient).sum(axis=2)
            assert (loss.max(axis=1) > mixture_range(bounds).high / 200).all()


def test_components_without_weight_do_not_decide_a_bound(x64):
    """A narrow one, far away, with a weight of e^-60: the worst component alone would make the bound 10,000 times."""
    weight, at = (
        weight_bounds(CUT),
        metric(general(mdn(1)).setting.weighting.centre, general(mdn(1)).setting.frame, 0.1),
    )
    assert weight is not None
    assert at is not None
    one = Components(np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1, 1)))
    two = Components(np.array([[0.0, -60.0]]), np.array([[0.0, 20.0]]), np.array([[[1.0], [1e-3]]]))
    alone, both = (each.at_level(at, weight).square.max() for each in (one, two))
    assert alone <= both < 3 * alone
    y = np.linspace(-30, 30, 100_001)
    mixture = GaussianMixture(
        jnp.asarray(two.log_weights[0]), jnp.array([[0.0], [20.0]]), jnp.array([[[1.0]], [[1e-3]]])
    )
    r, _, _, _ = (smoothed := mixture.smooth(0.1).components(jnp.asarray(y[:, None]))).mixed()
    squares = weight.value(np.abs(y) / at.stretch) ** 2 * np.asarray((r * smoothed.scores[:, 0] ** 2).sum(axis=0))
    assert squares.max() <= both


def test_mixtures_of_all_kinds_are_bounded(x64):
    """On the line, components of any widths, places and weights: sum_k r_k s_k^2 from a distance on, by brute force."""
    rng, at, weight = np.random.default_rng(0), Metric(0.1, 1.2, 1.0), weight_bounds(CUT)
    assert weight is not None
    logs, means = -30 * rng.random((300, 4)) ** 2, 8 * rng.standard_normal((300, 4))
    variances = np.exp(rng.uniform(-6, 2, (300, 4)))
    components = Components(logs, np.abs(means), variances[..., None])
    y = np.concatenate([np.linspace(-40, 40, 8001), [-1e3, 1e3]])
    smooth = variances[..., None] + 0.1**2
    g = logs[..., None] - 0.5 * np.log(smooth) - 0.5 * (y - means[..., None]) ** 2 / smooth
    scores = (y - means[..., None]) / smooth
    distance = np.abs(y) / at.stretch
    squares = weight.value(distance) ** 2 * (softmax(g, axis=1) * scores**2).sum(axis=1)
    for beyond in (0.0, 2.0, 9.0):
        found = squares[:, distance >= beyond].max(axis=1)
        bound = components.at_level(at, weight, beyond).square.max(axis=1)
        assert (found <= bound).all()
        assert np.median(bound / found) < 100


def test_the_range_of_one_gaussian_is_nearly_met(x64):
    at, weight = Metric(0.0, 1.0, 1.0), weight_bounds(CUT)
    assert weight is not None
    one = Components(np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1, 1), 0.5))
    y = jnp.linspace(0, 30, 30_001)
    w2, slope = jax.vmap(CUT.squared)(y)
    loss = np.asarray(w2 * ((2 * y) ** 2 - 4) - 2 * slope * 2 * y)
    low, high = mixture_range(one.at_level(at, weight))
    assert 0.3 * high[0] < loss.max() <= high[0]
    assert 0.3 * low[0] < -loss.min() <= low[0]


def test_nothing_within_a_set_of_places_is_worse_than_its_bound():
    rng = np.random.default_rng(0)
    rows, middle = rng.standard_normal((50, 7)), rng.standard_normal((4, 50))
    z = rng.standard_normal((50, 2))
    radius = 0.5 * rng.random((4, 50))
    wide = at_draws._Places(middle - radius, middle + radius)
    kl, shift = at_draws._by_place(wide, rows)[0], at_draws._largest_shift(wide, rows, z)
    largest, moved = np.zeros(4), 0.0
    apart = -np.sign(rows.T[:, None] - middle)  # what is large becomes larger, and what is small smaller
    for sign in [*rng.choice([-1, 1], (200, 50)), np.ones(50), -np.ones(50), apart]:
        change = rows.T[:, None] - (middle + sign * radius)  # (rows, places, draws)
        change = change - change.mean(axis=2, keepdims=True)
        largest = np.maximum(largest, (logsumexp(change, axis=2) - np.log(50)).max(axis=0))
        moved = max(moved, np.abs(softmax(change, axis=2) @ z).max())
    assert (largest <= kl).all()
    assert moved <= shift
    exact = at_draws._Places(middle, middle)
    change = rows.T[:, None] - middle
    direct = (logsumexp(change, axis=2) - np.log(50) - change.mean(axis=2)).max(axis=0)
    np.testing.assert_allclose(at_draws._by_place(exact, rows)[0], direct)
    np.testing.assert_allclose(at_draws._largest_shift(exact, rows, z), np.abs(softmax(change, axis=2) @ z).max())
    by_row = at_draws._largest_by_row(wide.low[0][:, None], wide.high[0][:, None], rows, 50.0)
    np.testing.assert_allclose(by_row[0], kl[0])


@pytest.mark.parametrize(
    "build",
    [
        line,
        lambda: line(whiten=False),
        lambda: general(mdn(1), IMQ(zeta=1.0), noise_levels=LEVELS, positions=draws()),
    ],
    ids=["cutoff", "user's units", "IMQ"],
)
def test_in_one_column_the_bound_is_hardly_above_what_is_found(build):
    posterior = build()
    bound, x = bound_of(posterior), places(posterior, 1000)
    kl, shift = searched(posterior, x)
    assert 0.9 * bound.kl < kl.max() <= bound.kl
    assert bound.shift is not None
    assert 0.5 * bound.shift < shift.max() <= bound.shift
    assert searched(posterior, x, multiple=0.3)[0].max() <= bound.kl
    assert bound.kl < 1e-3 * posterior.certificate.influence_bound
    assert posterior.certificate.at_draws == bound


def test_in_several_columns_it_holds():
    posterior = general(mdn(3), CUT, noise_levels=LEVELS, positions=draws())
    bound, kl = bound_of(posterior), searched(posterior, places(posterior, 200))[0]
    assert kl.max() <= bound.kl < posterior.certificate.influence_bound
    assert bound.shift is None
    without_noise = general(mdn(1), CUT, positions=draws())
    assert searched(without_noise, places(without_noise, 500))[0].max() <= bound_of(without_noise).kl


@pytest.mark.parametrize("d", [1, 2])
def test_it_holds_for_interpolated_scores(d):
    method = with_density(nsm.NSMBayesAmortised(skewed_prior(d), calibration=None, excess=None, noise_levels=LEVELS), d)
    posterior = method.build_posterior(skewed_data(d, 60, outliers=6), beta=0.5)
    x = np.random.default_rng(0).uniform(-12, 14, (600 if d == 1 else 60, d))
    bound, kl = bound_of(posterior), searched(posterior, x)[0]
    assert kl.max() <= bound.kl
    if d == 1:
        assert bound.kl < 1.1 * kl.max()
    assert bound_of(posterior.update(x[:20])).kl > 0


def test_a_bound_that_forgets_something_is_found_out(monkeypatch):
    """The search tells a wrong bound from a right one: with empty cells, or too small losses."""
    posterior, right = line(), Line.losses
    bound, kl = bound_of(posterior), searched(posterior, places(posterior, 1000))[0].max()

    def near_only(self, cells):
        middle, radius = right(self, cells)
        near = (np.abs(cells.low + cells.high) < 1)[:, None]
        return Places(np.where(near, middle, 0), np.where(near, radius, 0))

    def smaller(self, cells):
        middle, radius = right(self, cells)
        return Places(0.8 * middle, 0 * radius)

    for wrong in (near_only, smaller):
        monkeypatch.setattr(Line, "losses", wrong)
        assert bound_of(posterior).kl < kl <= bound.kl


def test_the_standard_error_is_that_of_independent_draws():
    found = [bound_of(line(seed=seed, count=100)) for seed in range(20)]
    kl, error = np.array([each[:2] for each in found]).T
    assert 0.5 < kl.std() / np.median(error) < 2


def test_what_is_written_can_be_read_and_says_what_it_is():
    certificate = line().certificate
    document = json.loads(json.dumps(certificate.as_json()))
    assert Certificate.from_json(document) == certificate
    [said] = re.findall(r"of at most (\S+) \(standard error", certificate.verdict)
    assert certificate.at_draws.kl <= float(said) < 1.1 * certificate.at_draws.kl
    words = " ".join(certificate.explain().split())
    assert "Proved for all parameters and all places" in words
    assert "for the posterior itself estimated, with a standard error" in words
    del document["at_draws"]
    assert Certificate.from_json(document).at_draws is None
    for wrong in (
        3.0,
        {"kl": 1.0},
        {"kl": None, "error": 0.1, "shift": None},
        {"kl": "1", "error": 0.1, "shift": None},
    ):
        with pytest.raises(nsm.InputError, match="'at_draws' is damaged"):
            Certificate.from_json(document | {"at_draws": wrong})


def test_very_many_observations_have_no_bound_at_the_draws(monkeypatch):
    monkeypatch.setattr(at_draws, "_MOST_ROWS", 30)
    certificate = general(mdn(1), CUT, noise_levels=LEVELS, x=data(1, n=31)).certificate
    assert certificate.robust
    assert certificate.at_draws is None
