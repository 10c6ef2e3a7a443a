"""Losses of many data sets of one column: those of each alone."""

import jax.numpy as jnp
import numpy as np
from support.known_mixtures import skewed, skewed_data

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses import NSMSetting, lines
from nsmbayes.losses.lines import Whitened, line_losses
from nsmbayes.losses.noise_levels import DEFAULT_NOISE_LEVELS
from nsmbayes.samplers.compiled import row_of
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import PlateauIMQ, Weighting, overall_many


@double_precision
def test_a_loss_is_that_of_the_data_set_alone(monkeypatch):
    weight = PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=12.0)
    sets = [skewed_data(1, n, seed=n) for n in (20, 61, 200)]
    sets[1][:3] = [[40.0], [-15.0], [1e6]]
    settings = [
        NSMSetting.of(skewed(1), Weighting(weight, fit_location_scatter(x)), DEFAULT_NOISE_LEVELS, whiten=True)
        for x in sets
    ]
    centres = [setting.weighting.centre for setting in settings]
    location, scale = (
        np.array([float(part) for part in parts])
        for parts in zip(*((centre.location[0], centre.factor[0, 0]) for centre in centres), strict=True)
    )
    data = Whitened.of(sets, location, scale)
    found = line_losses(skewed(1), weight, DEFAULT_NOISE_LEVELS, data)
    assert len(found) == 3
    assert set(found.rows % 8) == {0}
    assert len(set(found.rows)) > 1  # those of some data sets are filled up
    few = [found.only(np.array([i])).stacked for i in range(3)]
    assert [one.y.shape[1] for one in few] == found.rows.tolist()
    for i, (setting, x) in enumerate(zip(settings, sets, strict=True)):
        alone = setting.loss(x)
        for theta in (jnp.array([0.0, 0.0]), jnp.array([1.5, -0.7])):
            expected = alone(theta)
            np.testing.assert_allclose(row_of(found.stacked, found.axes, i)(theta), expected, rtol=1e-7)
            np.testing.assert_allclose(row_of(few[i], found.axes, 0)(theta), expected, rtol=1e-7)
            np.testing.assert_allclose(row_of(few[i], found.axes, 0).at_points(theta).sum(), expected, rtol=1e-7)
            with monkeypatch.context() as patch:
                patch.setattr(lines, "on_processor", lambda: False)  # single precision, as on a GPU
                np.testing.assert_allclose(row_of(found.stacked, found.axes, i)(theta), expected, atol=1e-3)
    for counts, setting, x in zip(data.counts(weight), settings, sets, strict=True):
        overall = np.asarray(overall_many(weight, setting.weighting.centre, jnp.asarray(x)))
        np.testing.assert_allclose(counts, overall * setting.weighting.at(x) ** 2, rtol=1e-9)


@double_precision
def test_a_loss_is_split_into_some_points_and_the_others():
    data = Whitened.of([skewed_data(1, n, seed=n) for n in (20, 200)], np.zeros(2), np.ones(2))
    every = line_losses(skewed(1), PlateauIMQ(radius=2.0, zeta=1.0), DEFAULT_NOISE_LEVELS, data)
    kept = np.random.default_rng(0).random(every.stacked.y.shape) < 0.3
    kept[1, :2] = False  # no point of the lowest level
    some, others = every.split(kept)
    assert (some.rows < every.rows).all()
    theta = jnp.array([0.5, -0.7])
    for i in range(2):
        whole, part, rest = (row_of(each.stacked, each.axes, i) for each in (every, some, others))
        np.testing.assert_allclose(part(theta), whole.at_points(theta)[kept[i]].sum(), rtol=1e-10)
        np.testing.assert_allclose(part(theta) + rest(theta), whole(theta), rtol=1e-10)
