"""Posteriors in ArviZ, whichever generation is installed, in xarray and in pandas."""

import numpy as np
import numpyro.distributions as dist
import pytest
from support.builders import GAUSSIAN, conjugate, general, mdn, prior_of

from nsmbayes.posteriors.arviz import write_netcdf

arviz = pytest.importorskip("arviz")
NEWER = int(arviz.__version__.partition(".")[0]) >= 1
POSITIONS = 0.5 + 0.3 * np.random.default_rng(0).standard_normal((4, 100, 2))


@pytest.fixture(scope="module")
def posterior():
    return general(mdn(1), positions=POSITIONS, beta=0.05)


@pytest.fixture(scope="module")
def data(posterior):
    return posterior.to_arviz(predictive=7)


def _groups(data):
    return set(data.children) if NEWER else set(data.groups())


def test_groups(posterior, data):
    always = {"posterior", "prior", "observed_data", "log_prior", "log_likelihood", "sample_stats"}
    assert _groups(data) == always | {"posterior_predictive", "prior_predictive"}
    assert type(data).__name__ == ("DataTree" if NEWER else "InferenceData")
    np.testing.assert_array_equal(data["posterior"]["theta_0"].values, POSITIONS[..., 0])
    stats = data["sample_stats"]
    np.testing.assert_array_equal(stats["weight"].values, posterior.weights)
    assert float(stats["learning_rate"]) == 0.05
    assert stats["r_hat"].coords["parameter"].values.tolist() == ["theta_0", "theta_1"]
    assert stats["acceptance_rate"].dims == ("chain",)
    assert data["posterior_predictive"]["x"].shape == (1, 7, 40, 1)
    assert data["observed_data"]["x"].coords["x_dim"].values.tolist() == ["x"]


def test_the_log_likelihood_is_minus_beta_times_the_loss(posterior, data):
    """With the log prior it is the log density of the posterior, up to a constant."""
    found = data["log_likelihood"]["x"].values
    np.testing.assert_allclose(found[2, 5], -0.05 * posterior.losses(POSITIONS[2, 5]), rtol=1e-10)
    total = found.sum(axis=2) + data["log_prior"]["log_prior"].values
    gap = total - posterior.log_prob(POSITIONS)
    np.testing.assert_allclose(gap, gap[0, 0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(data["sample_stats"]["lp"].values, total)
    assert "not a likelihood" in data["log_likelihood"].attrs["note"]


def test_a_closed_form():
    subject = conjugate(2)
    found = subject.to_arviz(50, chains=2, seed=3)
    theta = np.stack([found["posterior"][name].values for name in subject.parameter_names], axis=-1)
    np.testing.assert_array_equal(theta, subject.sample((2, 50), seed=3))
    loss = -found["log_likelihood"]["x"].values.sum(axis=2) / subject.beta
    np.testing.assert_allclose(loss, subject.n * subject.loss(theta), rtol=1e-8)
    assert "posterior_predictive" not in _groups(found)


def test_a_prior_that_is_not_gaussian():
    box = prior_of(dist.Uniform(-1.0, 1.0))
    found = general(mdn(1), prior=box, positions=POSITIONS).to_arviz(log_likelihood=False)
    np.testing.assert_allclose(found["log_prior"]["log_prior"].values, -2 * np.log(2))
    assert np.abs(found["prior"]["theta_0"].values).max() <= 1
    assert "log_likelihood" not in _groups(found)


def _distance(draws, log_weights):
    """Cumulative Jensen-Shannon distance of weighted draws from the draws, by its definition."""
    order = np.argsort(draws)
    weights = np.exp(log_weights - log_weights.max())[order]
    steps = np.diff(draws[order])
    largest = 0.0
    for way in (1, -1):  # the distribution functions of x and of -x
        q = np.cumsum(weights[::way] / weights.sum())[:-1]
        p = np.arange(1, len(draws)) / len(draws)
        gaps, middle = steps[::way], np.log2((p + q) / 2)
        found = np.sum(gaps * (p * (np.log2(p) - middle) + q * (np.log2(q) - middle)))
        largest = max(largest, np.sqrt(max(found, 0.0) / np.sum(gaps * (p + q))))
    return largest


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # the draws are made up
@pytest.mark.parametrize("component", ["prior", "likelihood"])
def test_sensitivity_has_the_same_numbers_in_every_generation(data, component):
    """Those of the definition, up to the smoothing of the largest weights."""
    log_density = data[f"log_{component}"]["log_prior" if component == "prior" else "x"].values
    log_density = log_density.reshape(400, -1).sum(axis=1)
    found = arviz.psense_summary(data, round_to=12)[component] if NEWER else arviz.psens(data, component=component)
    for j, name in enumerate(("theta_0", "theta_1")):
        scaled = [_distance(POSITIONS[..., j].ravel(), (alpha - 1) * log_density) for alpha in (0.99, 1.01)]
        assert float(found[name]) == pytest.approx(sum(scaled) / (2 * np.log2(1.01)), rel=0.05)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_influence_has_the_same_numbers_in_every_generation(data):
    """How far the mean moves without an observation, in standard deviations; without smoothing, where that is safe."""
    log_density = data["log_likelihood"]["x"].values.reshape(400, 40)
    shapes = np.asarray(arviz.loo(data, var_name="x", pointwise=True).pareto_k)
    safe = np.flatnonzero(shapes < 0.4)
    assert len(safe) > 10
    for j, name in enumerate(("theta_0", "theta_1")):
        draws = POSITIONS[..., j].ravel()
        if NEWER:
            found = arviz.loo_influence(data, group="posterior")[0][name].values
        else:
            found = _shift(draws, arviz.psislw(-log_density.T)[0])
        np.testing.assert_allclose(found[safe], _shift(draws, -log_density.T)[safe], rtol=0.05, atol=1e-4)


def _shift(draws, log_weights):
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return np.abs(weights @ draws / weights.sum(axis=1) - draws.mean()) / draws.std()


def test_summaries(data):
    table = arviz.summary(data, round_to="none")
    for j, name in enumerate(("theta_0", "theta_1")):
        assert table.loc[name, "mean"] == pytest.approx(POSITIONS[..., j].mean())
        assert table.loc[name, "sd"] == pytest.approx(POSITIONS[..., j].std(ddof=1))


@pytest.mark.filterwarnings("ignore")  # of matplotlib and ArviZ about their own layout
def test_arviz_draws():
    data = general(mdn(1), positions=POSITIONS).to_arviz(log_likelihood=False)
    for plot in (arviz.plot_trace, arviz.plot_pair):
        assert plot(data, backend="matplotlib") is not None


def test_netcdf(posterior, tmp_path):
    pytest.importorskip("h5netcdf")
    path = tmp_path / "folder" / "out.nc"
    write_netcdf(posterior, path)
    again = arviz.from_netcdf(path)
    np.testing.assert_array_equal(again["posterior"]["theta_1"].values, POSITIONS[..., 1])
    np.testing.assert_array_equal(again["sample_stats"]["weight"].values, posterior.weights)


def test_xarray_and_pandas(posterior):
    tree = posterior.to_xarray(log_likelihood=False)
    assert tree["posterior"]["theta_0"].dims == ("chain", "draw")
    frame = posterior.to_pandas()
    assert frame.loc[(3, 99), "theta_1"] == POSITIONS[3, 99, 1]
    assert frame.shape == (400, 2)
    assert frame["theta_0"].mean() == pytest.approx(posterior.mean[0])


def test_prior_draws_are_those_of_the_prior(data):
    draws = data["prior"]["theta_0"].values
    assert draws.shape == (1, 1000)
    assert abs(draws.mean() - GAUSSIAN.mean[0]) < 5 / np.sqrt(1000)
