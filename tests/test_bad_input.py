"""Bad input of every kind through the public API: an error that names the argument, says what to do, and harms nothing.

A new kind of bad input is one line of CASES.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.reference import random_family

import nsmbayes as nsm

NAN, INF = float("nan"), float("inf")

not_finite = st.sampled_from([NAN, INF, -INF])
not_an_array = st.sampled_from(
    [
        None, "text", "1.5", b"1.5", 1j, {1.0}, {"a": 1.0}, object(), ["1.0", "2.0"], [None], [[1.0], [2.0, 3.0]],
        [True, False], 10**400, np.array([1.0], dtype=object), np.array([1 + 1j]), np.array(["2020"], "M8[Y]"),
        np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    ]
)  # fmt: skip
not_a_number = not_finite | st.sampled_from(
    [None, "1", b"1", True, np.True_, 1j, np.complex64(1), [1.0], np.array([1.0]), object(), 10**400]
)
not_positive = not_a_number | st.floats(max_value=0.0, allow_infinity=False)
not_whole = st.sampled_from([None, "1", 1.5, 2.0, np.float64(3), True, np.True_, [1], NAN])
not_a_count = not_whole | st.integers(max_value=0)
not_a_seed = not_whole | st.integers(max_value=-1)
not_a_fraction = not_a_number | st.floats(max_value=-1e-9) | st.floats(min_value=1.0)
not_a_prior = st.sampled_from(
    [
        None, "gaussian", 1.0, nsm.GaussianPrior, dist.Normal, dist.Gamma(2.0), dist.Uniform(-1.0, 1.0),
        dist.LogNormal(), dist.Gamma(np.ones(2)).to_event(1), dist.TruncatedNormal(low=0.0), dist.StudentT(3.0),
        dist.TransformedDistribution(dist.Normal(), dist.transforms.ExpTransform()),
    ]
)  # fmt: skip
not_a_weight = st.sampled_from(["imq", 2.0, nsm.weights.IMQ, {"kind": "imq"}, lambda r: 1.0])
not_a_choice = st.sampled_from(["", "MCD", "z-score", 1, True, ["mcd"], ("robust",), np.array(["mcd", "mad"])])
few = st.sampled_from([6, 9])  # numbers of rows; a new one can mean a new compilation


def gauss(draw: Callable, *shape: int) -> np.ndarray:
    """Numbers without fault."""
    return np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape)


def spoilt(draw: Callable, *shape: int) -> np.ndarray:
    """Numbers of which some are NaN or infinite."""
    x = gauss(draw, *shape)
    entries = draw(st.lists(st.integers(0, x.size - 1), min_size=1, max_size=4))
    x.flat[entries] = [draw(not_finite) for _ in entries]
    return x


def other_rank(draw: Callable) -> np.ndarray:
    return gauss(draw, *draw(st.sampled_from([(), (3, 2, 1), (2, 2, 2, 2)])))


def tied(draw: Callable) -> np.ndarray:
    """So many equal values that the minimum covariance determinant is zero."""
    x = gauss(draw, 40)
    x[draw(st.integers(0, 10)) :][:30] = draw(st.floats(-1e6, 1e6))
    return x


def on_a_line(draw: Callable) -> np.ndarray:
    """Points of the plane on a straight line."""
    return gauss(draw, 20, 1) * np.array([1.0, draw(st.floats(0.1, 10.0))]) + 1.0


def asymmetric(draw: Callable) -> np.ndarray:
    return np.array([[1.0, draw(st.floats(0.1, 0.9))], [draw(st.floats(-0.9, 0.0)), 1.0]])


def singular(draw: Callable) -> np.ndarray:
    v = np.array([1.0, draw(st.floats(-100.0, 100.0).filter(lambda a: abs(a) > 0.01))])
    return np.outer(v, v)


class Case(NamedTuple):
    """What is handed in, `act(kit, draw)`, and the argument that the error must name."""

    argument: str
    act: Callable[[Any, Callable], Any]
    error: type[Exception] = nsm.InputError


def _training(field: str, values: st.SearchStrategy) -> Case:
    return Case(field, lambda k, draw: nsm.TrainingSettings(**{field: draw(values)}))


def _root(field: str, values: st.SearchStrategy) -> Case:
    return Case(field, lambda k, draw: nsm.calibration.RootCalibration(**{field: draw(values)}))


def _stochastic(field: str, values: st.SearchStrategy) -> Case:
    return Case(field, lambda k, draw: nsm.calibration.StochasticCalibration(**{field: draw(values)}))


CASES = {
    # the prior
    "prior mean: not an array": Case("mean", lambda k, d: nsm.GaussianPrior(d(not_an_array), [1.0])),
    "prior mean: NaN": Case("mean", lambda k, d: nsm.GaussianPrior(spoilt(d, 2), [1.0, 1.0])),
    "prior mean: a matrix": Case("mean", lambda k, d: nsm.GaussianPrior(gauss(d, 2, 2), [1.0, 1.0])),
    "prior mean: empty": Case("mean", lambda k, d: nsm.GaussianPrior([], [])),
    "covariance: NaN": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], spoilt(d, 2, 2))),
    "covariance: not an array": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], d(not_an_array))),
    "covariance: another size": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], np.eye(3))),
    "covariance: asymmetric": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], asymmetric(d))),
    "covariance: singular": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], singular(d))),
    "covariance: negative": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], -np.eye(2))),
    "covariance: no variance": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], [1.0, 0.0])),
    "covariance: indefinite": Case("covariance", lambda k, d: nsm.GaussianPrior([0.0, 0.0], [[1, 2], [2, 1]])),
    "not a Gaussian prior": Case("prior", lambda k, d: nsm.NSMBayesConj(d(not_a_prior))),
    # weights
    "IMQ: zeta": Case("zeta", lambda k, d: nsm.weights.IMQ(d(not_positive))),
    "plateau: zeta": Case("zeta", lambda k, d: nsm.weights.PlateauIMQ(zeta=d(not_positive))),
    "plateau: radius": Case("radius", lambda k, d: nsm.weights.PlateauIMQ(radius=d(not_positive))),
    "squared exponential: lengthscale": Case(
        "lengthscale", lambda k, d: nsm.weights.SquaredExponential(lengthscale=d(not_positive))
    ),
    # how a method is made
    "method: weight": Case("weight", lambda k, d: nsm.NSMBayesConj(k.prior, weight=d(not_a_weight))),
    "method: scatter": Case("scatter", lambda k, d: nsm.NSMBayesConj(k.prior, scatter=d(not_a_choice))),
    "method: scaling": Case("scaling", lambda k, d: nsm.NSMBayesConj(k.prior, scaling=d(not_a_choice))),
    "method: levels": Case(
        "noise_levels", lambda k, d: nsm.NSMBayesConj(k.prior, noise_levels=d(st.sampled_from([(), (0, 1), (2, 1)])))
    ),
    "method: levels and scaling": Case(
        "noise_levels", lambda k, d: nsm.NSMBayesConj(k.prior, scaling=d(st.just("robust-asinh")))
    ),
    "method: resolution": Case(
        "resolution", lambda k, d: nsm.NSMBayesConj(k.prior, resolution=d(st.sampled_from([-1, 1, "a"])))
    ),
    "method: hidden": Case("hidden", lambda k, d: nsm.NSMBayesConj(k.prior, hidden=d(not_a_count))),
    "method: calibration": Case(
        "calibration",
        lambda k, d: nsm.NSMBayesConj(
            k.prior, calibration=d(st.sampled_from(["root", 0.95, nsm.calibration.RootCalibration]))
        ),
    ),
    "method: too few or many names": Case(
        "parameter_names",
        lambda k, d: nsm.NSMBayesConj(k.prior, parameter_names=tuple("abcd"[: d(st.sampled_from([1, 3, 4]))])),
    ),
    "training: learning rate": _training("learning_rate", not_positive),
    "training: weight decay": _training("weight_decay", not_a_number | st.floats(max_value=-1e-9)),
    "training: batch size": _training("batch_size", not_a_count),
    "training: validation fraction": _training("validation_fraction", not_a_fraction | st.just(0.0)),
    "training: patience": _training("patience", not_a_count),
    "training: epochs": _training("max_epochs", not_a_count),
    "root calibration: bootstraps": _root("bootstraps", not_a_count | st.just(1)),
    "root calibration: target": _root("target", not_a_fraction),
    "root calibration: reference": _root("reference", not_a_choice),
    "root calibration: smallest": _root("smallest", not_positive | st.floats(min_value=0.25, max_value=1e300)),
    "root calibration: largest": _root("largest", not_positive | st.floats(min_value=1e-9, max_value=1e-6)),
    "root calibration: grid": _root("grid", not_a_count | st.just(1)),
    "stochastic calibration: first beta": _stochastic("initial_beta", not_positive),
    "stochastic calibration: steps": _stochastic("steps", not_a_count),
    "stochastic calibration: bootstraps": _stochastic("bootstraps", not_a_count | st.just(1)),
    "stochastic calibration: target": _stochastic("target", not_a_fraction),
    # simulations
    "theta: not an array": Case("theta", lambda k, d: k.fresh.append_simulations(d(not_an_array), k.x)),
    "theta: NaN": Case("theta", lambda k, d: k.fresh.append_simulations(spoilt(d, 9, 2), gauss(d, 9, 1))),
    "theta: another width": Case("theta", lambda k, d: k.fresh.append_simulations(gauss(d, 9, 3), gauss(d, 9, 1))),
    "theta: another rank": Case("theta", lambda k, d: k.fresh.append_simulations(other_rank(d), gauss(d, 9, 1))),
    "theta: empty": Case("theta", lambda k, d: k.fresh.append_simulations(np.empty((0, 2)), np.empty((0, 1)))),
    "x of simulations: not an array": Case("x", lambda k, d: k.fresh.append_simulations(k.theta, d(not_an_array))),
    "x of simulations: NaN": Case("x", lambda k, d: k.fresh.append_simulations(gauss(d, 9, 2), spoilt(d, 9, 3))),
    "x of simulations: another rank": Case("x", lambda k, d: k.fresh.append_simulations(gauss(d, 9, 2), other_rank(d))),
    "x of simulations: no columns": Case(
        "x", lambda k, d: k.fresh.append_simulations(gauss(d, 9, 2), np.empty((9, 0)))
    ),
    "more rows of theta than of x": Case(
        "theta", lambda k, d: k.fresh.append_simulations(gauss(d, 9, 2), gauss(d, d(st.integers(1, 8)), 1))
    ),
    "x of another width than before": Case(
        "x", lambda k, d: k.appended.append_simulations(gauss(d, 9, 2), gauss(d, 9, 3))
    ),
    "nothing to train on": Case("append_simulations", lambda k, d: k.fresh.train(progress=False)),
    "training: seed": Case("seed", lambda k, d: k.appended.train(d(not_a_seed), progress=False)),
    "x of simulations: a constant column": Case(
        "x",
        lambda k, d: (
            nsm.NSMBayesConj(k.prior)
            .append_simulations(gauss(d, 9, 2), np.full((9, 1), d(st.floats(-1e6, 1e6))))
            .train(progress=False)
        ),
    ),
    "theta: a constant column": Case(
        "theta",
        lambda k, d: (
            nsm.NSMBayesConj(k.prior)
            .append_simulations(gauss(d, 9, 2) * [1.0, 0.0] + 3.0, gauss(d, 9, 1))
            .train(progress=False)
        ),
    ),
    # observations
    "untrained": Case("train", lambda k, d: k.fresh.build_posterior(gauss(d, 9, 1)), nsm.NotTrainedError),
    "untrained: many data sets": Case(
        "train", lambda k, d: k.fresh.build_posteriors(gauss(d, 2, 9, 1), beta=1.0), nsm.NotTrainedError
    ),
    "untrained: save": Case("train", lambda k, d: k.fresh.save("nowhere"), nsm.NotTrainedError),
    "x: not an array": Case("x", lambda k, d: k.method.build_posterior(d(not_an_array))),
    "x: NaN": Case("x", lambda k, d: k.method.build_posterior(spoilt(d, d(few), 1))),
    "x: another rank": Case("x", lambda k, d: k.method.build_posterior(other_rank(d))),
    "x: another width than the model's": Case(
        "x", lambda k, d: k.method.build_posterior(gauss(d, 9, d(st.integers(2, 5))))
    ),
    "x: flat, for a model of two columns": Case("x", lambda k, d: k.plane.build_posterior(gauss(d, 9))),
    "x: of a model for another d_x": Case("x", lambda k, d: k.plane.build_posterior(gauss(d, 9, 1))),
    "x: empty": Case("x", lambda k, d: k.method.build_posterior(d(st.sampled_from([[], np.empty((0, 1))])))),
    "x: one row": Case("x", lambda k, d: k.method.build_posterior(gauss(d, 1, 1))),
    "x: one row of two columns": Case("x", lambda k, d: k.plane.build_posterior(gauss(d, 1, 2))),
    "x: constant": Case("x", lambda k, d: k.method.build_posterior(np.full(40, d(st.floats(-1e6, 1e6))))),
    "x: one constant column": Case("x", lambda k, d: k.plane.build_posterior(gauss(d, 20, 2) * [1, 0])),
    "x: tied": Case("x", lambda k, d: k.method.build_posterior(tied(d))),
    "x: on a line": Case("x", lambda k, d: k.plane_mcd.build_posterior(on_a_line(d))),
    "beta": Case("beta", lambda k, d: k.method.build_posterior(k.x, beta=d(not_positive.filter(_is_given)))),
    "posterior: weight": Case("weight", lambda k, d: k.method.build_posterior(k.x, weight=d(not_a_weight))),
    "posterior: prior": Case(
        "prior", lambda k, d: k.method.build_posterior(k.x, prior=d(not_a_prior.filter(_is_given)))
    ),
    "posterior: prior of another size": Case(
        "prior", lambda k, d: k.method.build_posterior(k.x, prior=nsm.GaussianPrior([0.0], [1.0]))
    ),
    "posterior: seed": Case("seed", lambda k, d: k.method.build_posterior(k.x, beta=1.0, seed=d(not_a_seed))),
    "data sets: rank": Case("x", lambda k, d: k.method.build_posteriors(gauss(d, 9, 1), beta=1.0)),
    "data sets: NaN": Case("x", lambda k, d: k.method.build_posteriors(spoilt(d, 2, 9, 1), beta=1.0)),
    "data sets: none": Case("x", lambda k, d: k.method.build_posteriors(np.empty((0, 9, 1)), beta=1.0)),
    "data sets: another width": Case("x", lambda k, d: k.method.build_posteriors(gauss(d, 2, 9, 2), beta=1.0)),
    "data sets: tied": Case("x", lambda k, d: k.method.build_posteriors(tied(d)[None, :, None], beta=1.0)),
    "data sets: beta": Case(
        "beta", lambda k, d: k.method.build_posteriors(gauss(d, 2, 9, 1), beta=d(not_positive.filter(_is_given)))
    ),
    # what posteriors are asked
    "update: not an array": Case("x_new", lambda k, d: k.posterior.update(d(not_an_array))),
    "update: NaN": Case("x_new", lambda k, d: k.posterior.update(spoilt(d, 6, 1))),
    "update: another width": Case("x_new", lambda k, d: k.posterior.update(gauss(d, 6, 2))),
    "update: empty": Case("x_new", lambda k, d: k.posterior.update([])),
    "update: refit on ties": Case("x", lambda k, d: k.posterior.update(np.full(200, 1.0), refit=True)),
    "with_beta": Case("beta", lambda k, d: k.posterior.with_beta(d(not_positive))),
    "with_prior": Case("prior", lambda k, d: k.posterior.with_prior(d(not_a_prior))),
    "with_prior of another size": Case(
        "prior", lambda k, d: k.posterior.with_prior(nsm.GaussianPrior(np.zeros(3), np.ones(3)))
    ),
    "sample: seed": Case("seed", lambda k, d: k.posterior.sample((3,), seed=d(not_a_seed))),
    "log density: width": Case("theta", lambda k, d: k.posterior.log_prob(gauss(d, d(st.sampled_from([1, 3]))))),
    "log density: not an array": Case("theta", lambda k, d: k.posterior.log_prob(d(not_an_array))),
    "loss: NaN": Case("theta", lambda k, d: k.posterior.loss(spoilt(d, 3, 2))),
    "region: level": Case("level", lambda k, d: k.posterior.contains([0.0, 0.0], level=d(not_a_fraction))),
    "MSE: another length": Case("theta_true", lambda k, d: k.posterior.mse(gauss(d, 3))),
    "weight elsewhere": Case("x", lambda k, d: k.posterior.weight_at(gauss(d, 4, 2))),
    # tasks and diagnostics
    "simulate: m": Case("m", lambda k, d: k.task.simulate(d(not_a_count), seed=0)),
    "simulate: seed": Case("seed", lambda k, d: k.task.simulate(3, seed=d(not_a_seed))),
    "simulator: width": Case("theta", lambda k, d: k.task.simulator(gauss(d, 3, 2), seed=0)),
    "observe: n": Case("n", lambda k, d: k.task.observe(d(not_a_count), seed=0)),
    "observe: seed": Case("seed", lambda k, d: k.task.observe(6, seed=d(not_a_seed))),
    "observe: contamination": Case(
        "contamination", lambda k, d: k.task.observe(6, seed=0, contamination=d(not_a_choice))
    ),
    "observe: fraction": Case(
        "fraction", lambda k, d: k.task.observe(6, seed=0, fraction=d(not_a_fraction.filter(_is_given)))
    ),
    "observe: fraction of nothing": Case(
        "fraction", lambda k, d: k.task.observe(6, seed=0, contamination="none", fraction=d(st.floats(0.01, 0.99)))
    ),
    "MMD: another width": Case("reference", lambda k, d: nsm.metrics.mmd2(gauss(d, 6, 2), gauss(d, 6, 3))),
    "MMD: one row": Case("reference", lambda k, d: nsm.metrics.mmd2(gauss(d, 6, 2), gauss(d, 1, 2))),
    "MMD: lengthscale": Case(
        "lengthscale",
        lambda k, d: nsm.metrics.mmd2(gauss(d, 6, 2), gauss(d, 6, 2), lengthscale=d(not_positive.filter(_is_given))),
    ),
    "MSE of draws: another length": Case("theta_true", lambda k, d: nsm.metrics.mse(gauss(d, 6, 2), gauss(d, 3))),
    "MSE of draws: NaN": Case("draws", lambda k, d: nsm.metrics.mse(spoilt(d, 6, 2), gauss(d, 2))),
    "coverage: too few draws": Case("draws", lambda k, d: nsm.metrics.covers(gauss(d, 2, 1), gauss(d, 1))),
    "coverage: level": Case(
        "level", lambda k, d: nsm.metrics.covers(gauss(d, 6, 2), gauss(d, 2), level=d(not_a_fraction))
    ),
    "load: no model": Case("path", lambda k, d: nsm.load(d(st.sampled_from(["no-such-model", "", ".", None, 3])))),
}


def _is_given(value: Any) -> bool:
    return value is not None  # None is a value of its own there: the default


@pytest.fixture(scope="module")
def kit():
    """Methods that work, a posterior of one of them, and what they must still be after every abuse."""
    prior = nsm.GaussianPrior([0.0, 0.5], [[1.0, 0.2], [0.2, 2.0]])

    def made(d_x: int, **options: Any) -> nsm.NSMBayesConj:
        return nsm.NSMBayesConj(prior, hidden=16, noise_levels=(0.0,), **options).adopt(random_family(d_x, 2))

    rng = np.random.default_rng(0)
    theta, x = rng.standard_normal((40, 2)), rng.standard_normal((40, 1))
    method = made(1)
    kit = SimpleNamespace(
        prior=prior,
        theta=theta,
        x=x,
        task=nsm.tasks.get("gnk"),
        fresh=nsm.NSMBayesConj(prior),
        appended=nsm.NSMBayesConj(prior).append_simulations(theta, x),
        method=method,
        plane=made(2, scatter="mad"),
        plane_mcd=made(2),
        posterior=method.build_posterior(x, beta=0.7),
    )
    kit.before = _state(kit)
    return kit


def _state(kit: Any) -> list[Any]:
    """All that a failed call might have changed, and whether the objects still do their work."""
    again = kit.method.build_posterior(kit.x, beta=0.7)
    numbers = [
        kit.prior.mean, kit.prior.covariance, kit.x, kit.theta, kit.posterior.mean, kit.posterior.covariance,
        kit.posterior.sample((2,), seed=1), again.mean, again.covariance,
    ]  # fmt: skip
    return [*(a.tolist() for a in numbers), kit.fresh.simulations_used, kit.posterior.n]


GUIDANCE = re.compile(
    r"must|needs|[Pp]ass |Drop|Remove|Choose|Call|call |leave|Reshape|Add |add |Lower|Change", flags=re.DOTALL
)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_bad_input_is_refused_with_good_advice(name, kit, data):
    case = CASES[name]
    with pytest.raises(case.error) as caught:
        case.act(kit, data.draw)
    message = str(caught.value)
    assert type(caught.value) is case.error
    assert re.search(rf"`{case.argument}`|\b{case.argument}\(", message), message
    assert GUIDANCE.search(message), message
    assert message.rstrip().endswith("."), message
    assert len(message) < 700, message
    assert _state(kit) == kit.before


def test_there_are_many_kinds():
    assert len(CASES) >= 100


def test_rows_are_named(kit):
    x = np.zeros((200, 1))
    x[[3, 17, 150]] = NAN
    with pytest.raises(nsm.InputError, match=r"`x` has 3 rows with NaN or infinite values \(row 3, 17, 150\)"):
        kit.method.build_posterior(x)
