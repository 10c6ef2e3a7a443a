"""Posteriors that a certificate says nothing bad about, and that a user should not take at face value."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.builders import GAUSSIAN, conjugate, general, mdn

from nsmbayes.posteriors.caveats import gaussian_kl, wrapped
from nsmbayes.weights import IMQ, PlateauIMQ

DRAWS = np.random.default_rng(0).standard_normal((2, 500, 2))
ORDINARY = 0.5 + 0.3 * DRAWS


def test_an_ordinary_posterior_has_no_warnings():
    posterior = general(mdn(1), positions=ORDINARY)
    assert posterior.warnings == ()
    assert "WARNING" not in posterior.summary()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weight": IMQ(zeta=0.05), "positions": ORDINARY}, "Most observations have little influence: 35 of 40 have"),
        ({"positions": DRAWS}, "The posterior is almost the prior"),
        ({"positions": ORDINARY - [0.0, 4.0]}, "The posterior mean of theta_1 is 3.5 prior standard deviations"),
    ],
)
def test_what_is_unusual_is_said(options, said):
    posterior = general(mdn(1), **options)
    [warning] = posterior.warnings
    assert warning.startswith(said)
    assert wrapped(warning) in posterior.summary()


PLATEAU = PlateauIMQ(radius=2.0, zeta=1.0)
NORMAL = np.random.default_rng(3).standard_normal((40, 1))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.where(np.arange(40)[:, None] < 10, 40 + NORMAL, NORMAL), "10 of 40 observations have a weight below 0.1"),
        (np.tile([-1.0, 0.0, 1.0, 0.0, 1.0], 8)[:, None], "The scatter of column 0 is no wider than one step of its"),
    ],
)
def test_implausible_weights_are_said(x, said):
    assert not general(mdn(1), PLATEAU, x=NORMAL, positions=ORDINARY).warnings
    [warning] = general(mdn(1), PLATEAU, x=x, positions=ORDINARY).warnings
    assert warning.startswith(said)
    page = " ".join((Path(__file__).parents[2] / "docs" / "warnings.md").read_text().replace("\n> ", " ").split())
    assert all(part.strip() in page for part in re.split(r"\d[\d,.]*", warning))


@pytest.mark.parametrize(("options", "how"), [({}, "data: and the"), ({"resolution": 0.2}, "data: there the")])
def test_a_linear_family_is_not_asked_for_more_than_it_can_say(options, how):
    assert not any("linear in theta" in warning for warning in conjugate(1, beta=0.01, **options).warnings)
    [warning] = [each for each in conjugate(1, beta=1e4, **options).warnings if "linear in theta" in each]
    assert warning.startswith("The 40 observations determine theta more precisely")
    assert how in warning


def test_divergence_from_the_prior():
    posterior = conjugate(1)
    theta = posterior.sample((200_000,), seed=0)
    estimate = (posterior.log_prob(theta) - GAUSSIAN.log_prob(theta)).mean()
    assert gaussian_kl(posterior) == pytest.approx(estimate, abs=0.05)


def test_every_warning_is_explained_in_the_docs():
    """The constant parts of every sentence stand on the page, in their order."""
    root = Path(__file__).parents[2]
    page = " ".join((root / "docs" / "warnings.md").read_text(encoding="utf-8").replace("\n> ", " ").split())
    warnings = [
        *general(mdn(1), weight=IMQ(zeta=0.05), positions=DRAWS).warnings,
        *general(mdn(1), positions=ORDINARY - [0.0, 4.0]).warnings,
        *conjugate(1, beta=1e4, resolution=0.2).warnings,
    ]
    assert len(warnings) >= 4
    for warning in warnings:
        parts = re.split(r"\d[\d,.]*|theta_\d", warning)
        assert all(part.strip() in page for part in parts), warning
