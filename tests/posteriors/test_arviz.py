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


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # the draws are made up
def test_what_arviz_computes(data):
    if NEWER:
        table = arviz.psense_summary(data)
        assert table.index.tolist() == ["theta_0", "theta_1"]
        influence = arviz.loo_influence(data, group="posterior")
        assert influence is not None
    else:
        sensitivity = arviz.psens(data, component="likelihood")
        assert float(sensitivity["theta_0"]) > 0
        assert arviz.loo(data, var_name="x", pointwise=True).pareto_k.shape == (40,)
    numbers = arviz.summary(data)
    assert numbers.loc["theta_0", "mean"] == pytest.approx(0.5, abs=0.1)


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
