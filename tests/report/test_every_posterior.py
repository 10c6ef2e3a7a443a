"""Reports, figures and ArviZ for posteriors that have no loss and no weights, as those of the baselines."""

import numpy as np
import numpyro.distributions as dist
import pytest
from support.builders import general, mdn
from support.html import Page

import nsmbayes as nsm
from nsmbayes.losses import NLESetting
from nsmbayes.plotting import plot_influence, plot_marginals, plot_pairs, plot_weights
from nsmbayes.plotting.weights import weighs_alike
from nsmbayes.posteriors import GeneralisedPosterior
from nsmbayes.posteriors.outliers import HEAD
from nsmbayes.report import write_report

TIED = np.repeat([0.0, 1.0, 2.0], [40, 5, 5])[:, None]


def _data(d_x, n=60):
    x = np.random.default_rng(0).standard_normal((n, d_x))
    x[:6] += 30
    return x


def _figure_files(folder):
    return {path.stem for path in folder.glob("*.png")}


@pytest.mark.parametrize("d_x", [1, 3])
def test_the_page_of_a_method_that_weighs_all_observations_alike(d_x, sampled, tmp_path):
    subject = sampled(_data(d_x), dropped=0.25 * (d_x == 3))
    page = Page(write_report(subject, tmp_path, truth=np.zeros(2)))
    text = "".join(page.text)
    assert ("25.00% of the simulations failed and were dropped" in text) == (d_x == 3)
    assert "NPE weighs all observations alike: it does not say which" in text
    assert "None: NPE weighs all observations alike" in text
    assert list(HEAD) not in page.rows
    assert subject.certificate.verdict in page.text
    assert not subject.certificate.robust
    assert _figure_files(tmp_path) == {"weights", "marginals", "pairs"}
    mean, sd = subject.mean[0], subject.std[0]
    low, high = subject.interval(0)
    assert page.row("theta_1") == ["theta_1", *(f"{v:.3f}" for v in (mean, sd, low, high, 0, 1, 0))]


def test_weights_over_one_dimensional_data(sampled):
    bars, curve = plot_weights(sampled(_data(1)), is_outlier=np.arange(60) < 6).axes
    assert sum(bar.get_height() for bar in bars.containers[1]) == 6
    assert set(curve.lines[0].get_ydata()) == {1.0}


def test_weights_against_robust_distance(sampled):
    (axis,) = plot_weights(sampled(_data(3)), is_outlier=np.arange(60) < 6).axes
    bulk, outliers = (np.asarray(points.get_offsets()) for points in axis.collections)
    assert set(bulk[:, 1]) | set(outliers[:, 1]) == {1.0}
    assert bulk[:, 0].max() < 6 < outliers[:, 0].min()


@pytest.mark.parametrize("columns", [1, 2])
def test_data_without_a_robust_scatter_are_shown_by_row(columns, sampled, tmp_path):
    subject = sampled(np.repeat(TIED, columns, axis=1), 1)
    (axis,) = plot_weights(subject, is_outlier=np.arange(50) > 44).axes
    assert axis.get_xlabel() == "row of the observation"
    places = np.concatenate([np.asarray(points.get_offsets()) for points in axis.collections])
    np.testing.assert_array_equal(places, np.column_stack([np.arange(50), np.ones(50)]))
    assert write_report(subject, tmp_path).is_file()


def test_marginals_and_pairs(sampled):
    """With a prior that is known by its draws."""
    box = dist.Uniform(-np.ones(2), np.ones(2)).to_event(1)
    subject, other = sampled(_data(1), prior=box), sampled(_data(1), seed=1)
    panels = plot_marginals({"one": subject, "two": other}, truth=np.zeros(2)).axes
    for j, axis in enumerate(panels):
        curves = {line.get_label(): line.get_data() for line in axis.lines}
        assert set(curves) == {"prior", "one", "two", "truth"}
        for label, shown in (("one", subject), ("two", other)):
            grid, density = curves[label]
            np.testing.assert_allclose(density, shown.marginal(j, grid))
            assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=0.01)
        assert np.trapezoid(curves["prior"][1], curves["prior"][0]) == pytest.approx(1.0, abs=0.05)
    visible = [axis for axis in plot_pairs({"one": subject, "two": other}).axes if axis.get_visible()]
    assert [len(axis.lines) for axis in visible] == [2, 0, 2]


def test_influence_needs_a_loss(posterior, sampled):
    with pytest.raises(nsm.InputError, match="'mine' is a SampledPosterior of NPE"):
        plot_influence({"NSM-Bayes-conj": posterior(1, 2), "mine": sampled(_data(1))})


def test_a_table_of_outliers_without_influence(sampled):
    rows = sampled(_data(1)).outliers(3)
    assert [row.weight for row in rows] == [1.0] * 3
    assert np.isnan([row.influence for row in rows]).all()
    with pytest.raises(nsm.InputError, match="NPE"):
        sampled(_data(1)).leave_one_out()


def test_arviz_of_draws(sampled):
    pytest.importorskip("arviz")
    subject = sampled(_data(3), 4)
    inference = subject.to_arviz()
    assert list(inference.posterior.data_vars) == list(subject.parameter_names)
    for j, name in enumerate(subject.parameter_names):
        np.testing.assert_array_equal(inference.posterior[name].values, subject.draws[..., j])
    np.testing.assert_array_equal(inference.observed_data["x"].values, subject.x)
    np.testing.assert_array_equal(inference.observed_data["weight"].values, np.ones(60))
    assert inference.observed_data["weight"].dims == ("observation",)


def test_a_baseline_beside_ours(posterior, sampled, tmp_path):
    ours, theirs = posterior(1, 2), sampled(_data(1))
    page = Page(write_report(ours, tmp_path, comparisons={"NPE": theirs}))
    assert "5 of 50 observations have a weight below 0.1: 5 lie far" in "".join(page.text)
    assert "converged" not in "".join(page.text)


def test_nle_is_shown_by_robust_distances_too(tmp_path):
    """It keeps no location and scatter, because its weight needs none."""
    built = general(mdn(3), nle=True)
    setting = NLESetting.of(mdn(3), 3)
    nle = GeneralisedPosterior(built.provenance, built.target, built.result, built.x, setting)
    assert weighs_alike(nle)
    (axis,) = plot_weights(nle, is_outlier=np.arange(40) < 4).axes
    bulk, outliers = (np.asarray(points.get_offsets())[:, 0] for points in axis.collections)
    assert np.median(bulk) < 3
    assert outliers.min() > 10
    page = Page(write_report(nle, tmp_path))
    assert "None: NSM-Bayes weighs all observations alike" in "".join(page.text)


@pytest.mark.parametrize("d_x", [1, 3])
def test_a_stored_posterior(d_x, posterior, tmp_path):
    """Its weight function is gone, its weights are not."""
    original = posterior(d_x, 2, beta=None)
    stored = nsm.load(original.save(tmp_path / "stored"))
    page = Page(write_report(stored, tmp_path / "report"))
    assert "5 of 50 observations have a weight below 0.1: 5 lie far" in "".join(page.text)
    for row in original.outliers():
        assert page.row(str(row.row)) == list(row.cells())
    points = plot_weights(stored).axes[-1].collections[0].get_offsets()
    np.testing.assert_array_equal(np.asarray(points)[:, 1], original.weights)
    assert _figure_files(tmp_path / "report") == {"weights", "marginals", "pairs", "calibration"}
