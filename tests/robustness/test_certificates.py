"""Certificates: true ones where the theory says so, bounds that hold, and what can be written and read again."""

import dataclasses
import functools
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from support import builders
from support.builders import data, general, maf, mdn, noisy_flow, prior_of, third_power

import nsmbayes as nsm
from nsmbayes.losses import DEFAULT_NOISE_LEVELS
from nsmbayes.robustness import Certificate, certify
from nsmbayes.robustness.bounds.surrogates import GROWTHS
from nsmbayes.robustness.bounds.weights import WEIGHT_BOUNDS
from nsmbayes.robustness.influence import losses_at
from nsmbayes.robustness.parts import notes
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import MixtureDensityNetwork
from nsmbayes.weights import IMQ, Constant, PlateauIMQ, SquaredExponential

DEFAULT = PlateauIMQ(radius=2.0, zeta=1.0)
conjugate = functools.partial(builders.conjugate, 1, weight=IMQ(zeta=2.0))


ROBUST = {
    "MDN, IMQ, zeta = 2": (lambda: general(mdn(1), IMQ(zeta=2.0)), "A4'", False),
    "MDN, IMQ, zeta = 1": (lambda: general(mdn(3), IMQ(zeta=1.0)), "A4'", True),
    "MDN in the user's units": (lambda: general(mdn(3), IMQ(zeta=1.0), whiten=False), "A4'", True),
    "MDN, squared exponential": (lambda: general(mdn(1), SquaredExponential()), "A4", True),
    "default: levels and plateau": (lambda: general(mdn(1), DEFAULT, noise_levels=DEFAULT_NOISE_LEVELS), "A4", True),
    "levels in three dimensions": (lambda: general(mdn(3), DEFAULT, noise_levels=(0.2, 0.4)), "A4", True),
    "MAF of one transform, zeta = 1": (lambda: general(maf(3), IMQ(zeta=1.0)), "A4'", False),
    "MAF of two transforms, zeta = 2/3": (lambda: general(maf(3, transforms=2), IMQ(zeta=2 / 3)), "A4'", False),
    "MAF in one dimension, zeta = 2": (lambda: general(maf(1, transforms=5), IMQ(zeta=2.0)), "A4'", False),
    "noisy flow of two transforms, zeta = 2/3": (
        lambda: general(noisy_flow(2), IMQ(zeta=2 / 3), noise_levels=(0.5, 1.0)),
        "A4'",
        False,
    ),
    "third power, zeta = 1/2": (lambda: general(third_power()[0], IMQ(zeta=0.5)), "A4'", True),
    "MAD": (lambda: general(mdn(1), estimator="mad"), "A4'", True),
    "uniform prior": (lambda: general(mdn(1), prior=prior_of(dist.Uniform(-1.0, 1.0))), "A4'", True),
    "conj": (conjugate, "A5", True),
    "conj, any zeta": (lambda: conjugate(weight=IMQ(zeta=7.0)), "A5", True),
    "conj, noise levels": (lambda: conjugate(noise_levels=(0.5, 1.0)), "A5", True),
    "conj, constant weight": (lambda: conjugate(weight=Constant()), "A5", False),
}


@pytest.mark.parametrize("name", ROBUST)
def test_what_is_proved_is_certified(name):
    build, assumption, vanishing = ROBUST[name]
    certificate = build().certificate
    assert certificate.robust, certificate.explain()
    assert certificate.assumption == assumption
    assert certificate.vanishing == vanishing
    assert 0 < certificate.influence_bound < np.inf
    assert all(np.isfinite(value) for value in certificate.constants.values())
    assert not certificate.failures
    assert Certificate.from_json(json.loads(json.dumps(certificate.as_json(), allow_nan=False))) == certificate


def test_a_certificate_is_computed_once_and_shown():
    posterior = conjugate()
    assert posterior.certificate is posterior.certificate
    assert " ".join(posterior.certificate.verdict.split()) in " ".join(posterior.summary().split())
    assert posterior.with_beta(0.6).certificate.influence_bound > posterior.certificate.influence_bound
    words = posterior.certificate.explain()
    for name, value in posterior.certificate.constants.items():
        assert name in words
        assert f"{value:.6g}" in words


def test_nothing_is_assumed_of_what_is_not_known():
    class Thing:
        pass

    certificate = certify(Thing())
    assert isinstance(certificate, Certificate)
    assert not certificate.robust
    assert "no theorem is known for a Thing" in certificate.verdict


def test_numbers_that_json_cannot_hold_come_back_as_infinity():
    certificate = general(mdn(1), Constant()).certificate
    assert np.isinf(certificate.constants["loss_high"])
    assert certificate.as_json()["constants"]["loss_high"] is None
    assert Certificate.from_json(certificate.as_json()) == certificate


def test_what_is_no_certificate_is_refused():
    document = conjugate().certificate.as_json()
    del document["checks"]
    with pytest.raises(nsm.InputError, match=r"`document` must be what .* lacks 'checks'"):
        Certificate.from_json(document)


class MyIMQ(IMQ):
    """An inverse multiquadric of the user's, about which the user can tell what is known."""


class MyMixture(MixtureDensityNetwork):
    """A mixture density network of the user's."""


def test_what_is_known_about_other_weights_and_surrogates_is_told_by_two_tables(monkeypatch):
    surrogate = MyMixture(**{f.name: getattr(mdn(1), f.name) for f in dataclasses.fields(mdn(1))})
    assert general(surrogate, MyIMQ(zeta=1.0)).certificate.failures == ("A1", "A2", "A4")
    monkeypatch.setitem(WEIGHT_BOUNDS, MyIMQ, WEIGHT_BOUNDS[IMQ])
    assert general(surrogate, MyIMQ(zeta=1.0)).certificate.failures == ("A2", "A4")
    monkeypatch.setitem(GROWTHS, MyMixture, GROWTHS[MixtureDensityNetwork])
    assert general(surrogate, MyIMQ(zeta=1.0)).certificate.robust


def test_certificates_say_that_factors_by_number_are_kept():
    x = np.random.default_rng(0).standard_normal((40, 3))
    posterior: Any = SimpleNamespace(x=x, suspects=object(), surrogate_check=None)
    assert "The factors by number (excess) stay as they are" in " ".join(notes(fit_location_scatter(x), posterior))


def test_more_outliers_than_half_are_warned_of():
    x = data(1, n=100)
    x[:45] += 1000
    assert "no location and scatter can tell" in " ".join(general(mdn(1), x=x).certificate.notes)
    assert "no location and scatter can tell" not in " ".join(general(mdn(1)).certificate.notes)


@pytest.mark.parametrize(
    "build",
    [
        lambda: general(mdn(1), DEFAULT, noise_levels=(0.2, 0.8)),
        lambda: general(mdn(3), IMQ(zeta=2.0)),
        lambda: general(maf(3, transforms=2), IMQ(zeta=2 / 3)),
    ],
    ids=["levels", "mdn", "maf"],
)
def test_no_loss_leaves_the_certified_range(x64, build):
    """For any theta and any x: far out, near, and where a search has climbed to."""
    posterior = build()
    certificate = posterior.certificate
    rng = np.random.default_rng(0)
    d_x = posterior.x.shape[1]
    thetas = rng.standard_normal((24, 2)) * np.geomspace(0.3, 1e4, 24)[:, None]
    location, scatter = posterior.location_scatter
    scale = np.sqrt(np.diag(scatter))
    x = location + scale * rng.standard_normal((128, d_x)) * np.geomspace(0.1, 1e7, 128)[:, None]
    worst = -np.inf
    for _ in range(3):  # climb: keep the best, and look around them
        losses = losses_at(posterior, x, thetas)
        assert -certificate.constants["loss_low"] <= losses.min()
        assert losses.max() <= certificate.constants["loss_high"]
        assert losses.max() >= worst - 1e-9
        worst = losses.max()
        best = x[np.argsort(losses.max(axis=0))[-16:]]
        moved = np.repeat(best, 7, axis=0)
        moved = location + (moved - location) * np.exp(0.3 * rng.standard_normal(moved.shape))
        x = np.concatenate([best, moved])
    assert certificate.constants["loss_high"] > 0
