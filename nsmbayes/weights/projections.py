"""Directions in which data of many columns differ from the fitted model; kernels look along one direction at a time.

In coordinates z in which the model has mean zero and unit covariance, good observations have second moments of one in
every direction. A group with a share p of the rows at distance r adds about p r^2 in its own direction, whichever
columns it involves. So the eigenvectors of the second moments with the largest eigenvalues, and those with the smallest
(groups that are too tight), are the directions to look along. Rows far out are first pulled in, since a few of them
would hide everything else.
"""

import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import MixtureDensity, Moments

WIDE, TIGHT = 6, 2
"""Number of directions with the largest, and with the smallest, second moments."""
_OUT = 4.0  # in scales: rows farther out than the usual distance from the mean plus this are pulled in


@double_precision
def revealing_axes(
    density: MixtureDensity,
    thetas: Float[np.ndarray, "draws d_theta"],
    x: Float[np.ndarray, "n d_x"],
    centre: LocationScatter,
) -> Float[np.ndarray, "axes d_x"]:
    """Directions in which `x` differs most from the model averaged over draws; of unit length under the scatter."""
    means, covariances = map_rows(_moments, thetas, density)
    mean = means.mean(axis=0)
    values, vectors = np.linalg.eigh(covariances.mean(axis=0) + np.atleast_2d(np.cov(means.T, bias=True)))
    whiten = vectors / np.sqrt(np.maximum(values, 1e-12 * values.max()))  # z = (x - mean) @ whiten
    z = (x - mean) @ whiten
    lengths = np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-300)
    z *= np.minimum(1.0, (np.sqrt(x.shape[1]) + _OUT) / lengths)
    along = np.linalg.eigh(z.T @ z / len(z))[1]
    axes = (whiten @ np.concatenate([along[:, -WIDE:], along[:, :TIGHT]], axis=1)).T
    return axes / np.linalg.norm(axes @ np.asarray(centre.factor), axis=1, keepdims=True)


def _moments(theta: Float[Array, " d_theta"], density: MixtureDensity) -> Moments:
    """Mean and covariance of the model, in the units of x."""
    mean, covariance = density.mixture(density.scale_theta(theta)).moments()
    unit = density.scale_x.scale
    return Moments(density.scale_x.centre + unit * mean, unit[:, None] * covariance * unit)
