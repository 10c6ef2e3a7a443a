"""Growth of interpolated scores: the growth of the surrogate, times an upper bound of the coefficients."""

import numpy as np

from nsmbayes.losses.interpolated import Interpolation
from nsmbayes.robustness.bounds.growth import Growth, Polynomial
from nsmbayes.robustness.bounds.rounding import up


def interpolated_growths(growths: list[Growth], interpolation: Interpolation, origin: np.ndarray) -> list[Growth]:
    """The growth of s = sum_k c_k(theta) s_k / size_k at each noise level, given that of the surrogate.

    The coefficients are linear in the surrogate's scores at the design points, which are bounded by its growth for all
    theta: C = sum_k |c_k| / size_k is at most sum_k sum_m |P_km| |s(u_m)| / size_k. Then |s| is at most C times the
    bound for one reference, |lap| at most C times the larger of its two bounds, and both give |s|^2 + 2 lap.
    """
    basis, offset = np.asarray(interpolation.frame.basis), np.asarray(interpolation.frame.offset)
    centre = np.linalg.solve(basis, origin - offset)
    found = []
    for level, growth in enumerate(growths):
        distance = np.linalg.norm(np.asarray(interpolation.design)[level] - centre, axis=1)
        rho = growth.a + growth.b * distance
        bounds = np.repeat(np.polynomial.polynomial.polyval(rho, growth.score), len(origin))
        reach = np.abs(np.asarray(interpolation.projector)[level]) @ bounds
        C = up(float((reach / np.asarray(interpolation.sizes)[level]).sum()))
        both = _sum(growth.laplacian_below, growth.laplacian_above)
        square = np.polynomial.polynomial.polymul(growth.score, growth.score)
        found.append(
            growth._replace(
                score=C * growth.score,
                laplacian_below=C * both,
                laplacian_above=C * both,
                together=_sum(C**2 * square, 2 * C * both),
                constants=growth.constants | {"coefficients": C},
            )
        )
    return found


def _sum(one: Polynomial, other: Polynomial) -> Polynomial:
    return np.polynomial.polynomial.polyadd(one, other)
