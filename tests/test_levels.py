import itertools

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.levels import DEFAULT_LEVELS, noise_rule


def gaussian_moment(powers):
    """E prod e_i^p_i for independent standard normals."""
    return np.prod([0.0 if p % 2 else np.prod(np.arange(p - 1, 0, -2, dtype=float)) for p in powers])


@pytest.mark.parametrize(("d", "degree"), [(1, 13), (2, 5), (3, 5), (5, 5)])
def test_nodes_integrate_polynomials_exactly(d, degree):
    rule = noise_rule(DEFAULT_LEVELS, d)
    for powers in itertools.product(range(degree + 1), repeat=d):
        if sum(powers) <= degree:
            value = rule.node_weights @ np.prod(rule.nodes ** np.asarray(powers), axis=1)
            assert value == pytest.approx(gaussian_moment(powers), abs=1e-9, rel=1e-9)


def test_degree_five_is_not_degree_six():
    """The test above can fail: one degree more is not integrated."""
    rule = noise_rule(DEFAULT_LEVELS, 3)
    assert rule.node_weights @ rule.nodes[:, 0] ** 6 != pytest.approx(15, rel=1e-3)


def test_coefficients_integrate_over_log_h():
    """A Gaussian shifted by one: integral of h^2 / (1 + h^2)^2 over log h is 1/2, the divergence KL."""
    rule = noise_rule(tuple(0.05 * 2.0**i for i in range(12)), 1)
    assert rule.coefficients @ (1 / (1 + rule.h**2) ** 2) == pytest.approx(0.5, rel=0.01)


def test_level_zero_is_the_plain_loss():
    rule = noise_rule((0,), 3)
    assert rule.h.tolist() == [0]
    assert rule.coefficients.tolist() == [1]
    assert rule.nodes.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("levels", [(), (-1.0,), (0.0, 1.0), (2.0, 1.0), (1.0, 1.0), (np.nan,), "high"])
def test_bad_levels(levels):
    with pytest.raises(nsm.InputError, match="`levels`"):
        noise_rule(levels, 1)
