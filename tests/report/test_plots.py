"""The figures."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import nsmbayes as nsm
from nsmbayes.plotting import (
    plot_calibration,
    plot_delay_profile,
    plot_influence,
    plot_marginals,
    plot_trajectories,
    plot_weights,
)
from nsmbayes.robustness import line as influence_line
from nsmbayes.robustness import pif_delta


def _labels(fig: Figure):
    return [label for axis in fig.axes for label in axis.get_legend_handles_labels()[1]]


def test_weights_of_one_dimension_over_the_data(posterior):
    subject = posterior(1, 2)
    fig = plot_weights(subject, is_outlier=np.arange(50) < 5)
    bars, curve = fig.axes
    assert _labels(fig) == ["observations", "outliers (known here, not to the method)", "weight $w(x)$"]
    assert sum(bar.get_height() for group in bars.containers for bar in group) == 50
    assert sum(bar.get_height() for bar in bars.containers[1]) == 5
    assert np.array_equal(curve.collections[0].get_offsets(), np.column_stack([subject.x[:, 0], subject.weights]))
    (line,) = curve.lines
    assert np.array_equal(line.get_ydata(), subject.weight_at(line.get_xdata()))
    assert _labels(plot_weights(subject)) == ["observations", "weight $w(x)$"]


@pytest.mark.parametrize(("d_x", "far"), [(3, 30.0), (1, 1e6), (1, 1e306), (3, 1e150)])
def test_weights_against_distance(d_x, far, posterior):
    """In more than one dimension, and where a histogram would show one bar for the bulk and one for the outliers."""
    subject = posterior(d_x, 2, far=far)
    fig = plot_weights(subject, is_outlier=np.arange(50) < 5)
    (axis,) = fig.axes
    assert _labels(fig) == ["observations", "outliers (known here, not to the method)"]
    bulk, outliers = (np.asarray(points.get_offsets()) for points in axis.collections)
    assert np.array_equal(np.concatenate([outliers, bulk])[:, 1], subject.weights)
    location, scatter = subject.location_scatter
    z = np.linalg.solve(np.linalg.cholesky(scatter), (subject.x[5:] - location).T)
    assert np.allclose(bulk[:, 0], np.sqrt((z**2).sum(axis=0)))
    assert outliers[:, 0].min() > 10
    fig.savefig("/dev/null", format="png")
    ticks = axis.get_xticks()
    assert 4 <= len(ticks) <= 12
    assert ticks[0] == 0
    assert ticks[-1] <= axis.get_xlim()[1]
    assert len(plot_weights(subject).axes[0].collections) == 1


def _densities(fig):
    """Curves by panel and label: (grid, density)."""
    return [{line.get_label(): line.get_data() for line in axis.lines} for axis in fig.axes if axis.get_visible()]


@pytest.mark.parametrize("d_theta", [1, 4, 6])
def test_marginals_are_those_of_the_posteriors(d_theta, posterior):
    first, second = posterior(1, d_theta), posterior(1, d_theta, beta=400.0, seed=1)
    truth = np.arange(d_theta) / 7
    fig = plot_marginals({"one": first, "two": second}, truth=truth)
    panels = _densities(fig)
    assert [axis.get_xlabel() for axis in fig.axes if axis.get_visible()] == list(first.parameter_names)
    for j, panel in enumerate(panels):
        assert set(panel) == {"prior", "one", "two", "truth"}
        assert set(panel["truth"][0]) == {truth[j]}
        for label, distribution in (("prior", first.prior), ("one", first), ("two", second)):
            grid, density = panel[label]
            # Wide and fine enough for each of them, however narrow it is and however far from the prior.
            mass = np.trapezoid(density, grid)
            assert mass == pytest.approx(1.0, abs=1e-3)
            assert np.trapezoid(density * grid, grid) == pytest.approx(distribution.mean[j], abs=1e-2)
            assert density.max() == pytest.approx(1 / np.sqrt(2 * np.pi) / distribution.std[j], rel=1e-3)
    assert "truth" not in _densities(plot_marginals({"one": first}))[0]


def test_marginals_of_many_posteriors(posterior):
    """More than there are colours; each keeps its own line and label."""
    many = {f"number {i}": posterior(1, 1, seed=i) for i in range(7)}
    fig = plot_marginals(many)
    assert list(_densities(fig)[0]) == ["prior", *many]


def test_calibration_by_root_search(posterior):
    calibration = posterior(1, 2, beta=None).calibration
    fig = plot_calibration(calibration)
    (axis,) = fig.axes
    curve, chosen, target = axis.lines
    assert np.array_equal(curve.get_xdata(), calibration.betas)
    assert np.array_equal(curve.get_ydata(), calibration.coverages)
    assert set(chosen.get_xdata()) == {calibration.beta}
    assert set(target.get_ydata()) == {calibration.target}


def test_stochastic_calibration(posterior):
    settings = nsm.calibration.StochasticCalibration(bootstraps=10, steps=4)
    subject = posterior(1, 2, beta=None, calibration=settings)
    left, right = plot_calibration(subject.calibration).axes
    assert np.array_equal(left.lines[0].get_ydata(), subject.calibration.betas)
    assert set(left.lines[1].get_ydata()) == {subject.beta}
    assert np.array_equal(right.lines[0].get_ydata(), subject.calibration.coverages)


def test_the_influence_of_a_moving_observation(posterior):
    """The curve is PIF_Delta, flat far out for a posterior that is robust."""
    shown = posterior(1, 2)
    fig = plot_influence({"NSM-Bayes-conj": shown}, reach=1e4)
    (line,) = fig.axes[0].get_lines()
    distances, values = line.get_data()
    expected = pif_delta(shown, influence_line(shown, distances[::20])).total_variation
    np.testing.assert_allclose(values[::20], expected)
    assert distances[-1] == 1e4
    assert values[-1] == pytest.approx(values[-5])
    assert fig.axes[0].get_yscale() == "log"


def test_trajectories_are_drawn_as_they_are_and_outliers_apart():
    reported = np.arange(12).reshape(4, 3)
    fig = plot_trajectories(reported, is_outlier=np.array([False, True, False, False]))
    good, bad = fig.axes[0].collections
    assert [segment[:, 1].tolist() for segment in good.get_segments()] == reported[[0, 2, 3]].tolist()
    assert [segment.tolist() for segment in bad.get_segments()] == [[[1, 3], [2, 4], [3, 5]]]
    assert good.get_linestyle() != bad.get_linestyle()  # told apart without colours
    assert len(_labels(fig)) == 2
    assert len(_labels(plot_trajectories(reported))) == 1


def test_the_delay_profile_averages_power_before_it_takes_decibels():
    times, power = np.array([0.0, 1e-9]), np.array([[1.0, 4.0], [3.0, 16.0], [1e-3, 1e-3]])
    fig = plot_delay_profile(times, power, is_outlier=np.array([False, False, True]))
    single, average, bad_single, bad_average = fig.axes[0].lines
    np.testing.assert_allclose(single.get_ydata(), 10 * np.log10([1, 4]))
    np.testing.assert_allclose(average.get_xdata(), [0, 1])
    np.testing.assert_allclose(average.get_ydata(), [10 * np.log10(2), 10])
    for series in (bad_single, bad_average):
        np.testing.assert_allclose(series.get_ydata(), -30)
    assert average.get_linestyle() != bad_average.get_linestyle()
    assert len(_labels(plot_delay_profile(times, power))) == 1


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: plot_trajectories(np.full((2, 3), np.nan)), "`reported`"),
        (lambda: plot_trajectories(np.ones((2, 3)), is_outlier=np.ones(3, bool)), "`is_outlier`"),
        (lambda: plot_delay_profile(np.arange(2.0), np.ones((2, 3))), "`times`"),
        (lambda: plot_delay_profile(np.arange(3.0), np.zeros((2, 3))), "`power`"),
    ],
)
def test_pictures_of_data_name_what_they_cannot_draw(draw, says):
    with pytest.raises(nsm.InputError, match=says):
        draw()
