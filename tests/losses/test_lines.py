"""Losses of many data sets of one column: those of each alone."""

import jax.numpy as jnp
import numpy as np
from support.known_mixtures import skewed, skewed_data

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.lines import Whitened, line_losses
from nsmbayes.losses.noise_levels import DEFAULT_NOISE_LEVELS
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import PlateauIMQ, Weighting, overall_many


@double_precision
def test_a_loss_is_that_of_the_data_set_alone():
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
    assert {np.shape(one.y)[0] % 8 for one in found} == {0}
    for one, setting, x in zip(found, settings, sets, strict=True):
        alone = setting.loss(x)
        for theta in ([0.0, 0.0], [1.5, -0.7]):
            np.testing.assert_allclose(one(jnp.asarray(theta)), alone(jnp.asarray(theta)), rtol=1e-7)
    alike = line_losses(skewed(1), weight, DEFAULT_NOISE_LEVELS, data, alike=True)
    assert len({np.shape(one.y) for one in alike}) == 1 < len({np.shape(one.y) for one in found})
    for one, other in zip(found, alike, strict=True):
        np.testing.assert_allclose(one(jnp.asarray([1.5, -0.7])), other(jnp.asarray([1.5, -0.7])), rtol=1e-12)
    for counts, setting, x in zip(data.counts(weight), settings, sets, strict=True):
        overall = np.asarray(overall_many(weight, setting.weighting.centre, jnp.asarray(x)))
        np.testing.assert_allclose(counts, overall * setting.weighting.at(x) ** 2, rtol=1e-9)
