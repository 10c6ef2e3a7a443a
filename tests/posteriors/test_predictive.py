"""Predictive draws, p-values of statistics, figures and what notebooks show."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from support.builders import conjugate, general, maf, mdn
from support.known_mixtures import skewed_data, skewed_prior, with_density

import nsmbayes as nsm
from nsmbayes.report import Section, diagnose


@pytest.fixture(scope="module")
def method():
    return with_density(nsm.NSMBayes(skewed_prior(1), calibration=None, draws=200, chains=2), 1)


@pytest.fixture(scope="module")
def posterior(method):
    return method.build_posterior(skewed_data(1, 60, outliers=6), seed=0)


SIMULATOR = nsm.NumpySimulator(
    lambda rng, theta: (
        theta[:1]
        + np.exp(theta[1]) * (2 + 0.5 * rng.standard_normal(1) if rng.random() < 0.3 else rng.standard_normal(1))
    )
)


def test_surrogate_and_simulator_predict_the_same(posterior):
    """Means of 40 data sets of 60 rows: five standard errors."""
    one, two = posterior.predict(m=40, seed=1), posterior.predict(SIMULATOR, 40, seed=1)
    assert (one.source, two.source) == ("surrogate", "simulator")
    assert one.x.shape == two.x.shape == (40, 60, 1)
    np.testing.assert_array_equal(one.theta, two.theta)
    error = 5 * np.hypot(*(each.x.mean(axis=1).std() / np.sqrt(40) for each in (one, two)))
    assert abs(one.x.mean() - two.x.mean()) < error
    np.testing.assert_allclose(one.weights[3], posterior.weight_at(one.x[3]))


def test_p_values_weigh_both_sides(posterior):
    found = posterior.predict(m=99, seed=1).check()
    assert set(found) == {"mean of x", "sd of x", "skewness of x"}
    assert found["mean of x"].p_value > 0.02
    plain = posterior.predict(m=99, seed=1).p_value(lambda x, w: x.mean())  # which the outliers move
    assert plain.p_value == pytest.approx(2 / 100)
    assert "sd of x" in posterior.predict(m=20).table()


def test_bad_arguments(posterior):
    with pytest.raises(nsm.InputError, match="`m` must be at least 1"):
        posterior.predict(m=0)
    with pytest.raises(nsm.InputError, match="pass `simulator`"):
        conjugate(1).predict()
    with pytest.raises(nsm.InputError, match="`kind` must be one of"):
        posterior.plot("pie")
    with pytest.raises(nsm.InputError, match="stored, or made by hand"):
        general(mdn(1)).verdict()


def test_draws_of_a_flow_are_those_of_its_density():
    """E log q(x) over draws is minus the entropy, here estimated by quadrature: 5 standard errors of 4,000 draws."""
    pytest.importorskip("flowjax")
    flow = maf(2)
    theta = np.zeros((1, 2))
    x = flow.draw(theta, 4000, np.random.default_rng(0))[0]
    with jax.enable_x64(True):
        logs = np.asarray(flow.log_probs(jnp.asarray(theta[0]), jnp.asarray(x)))
        middle, width = x.mean(axis=0), 7 * x.std(axis=0)
        axes = [np.linspace(m - w, m + w, 201) for m, w in zip(middle, width, strict=True)]
        grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        on_grid = np.asarray(flow.log_probs(jnp.asarray(theta[0]), jnp.asarray(grid)))
    area = np.prod([a[1] - a[0] for a in axes])
    assert np.exp(on_grid).sum() * area == pytest.approx(1.0, abs=0.01)
    expected = (np.exp(on_grid) * on_grid).sum() * area
    assert abs(logs.mean() - expected) < 5 * logs.std() / np.sqrt(len(logs))


@pytest.mark.parametrize("kind", ["marginals", "pairs", "weights", "predictive", "influence"])
def test_every_kind_of_figure(posterior, kind):
    assert isinstance(posterior.plot(kind), Figure)


def test_the_predictive_figure_marks_low_weights(posterior):
    (axis,) = posterior.plot("predictive", m=20).axes
    marked = next(points for points in axis.collections if str(points.get_label()).startswith("weight below"))
    assert len(marked.get_offsets()) == (posterior.weights < 0.1).sum()
    assert axis.patches[0].get_width() > 0
    several = general(mdn(3)).plot("predictive", m=5)
    assert sum(each.get_visible() for each in several.axes) == 6


def test_notebooks(posterior):
    shown = posterior._repr_html_()
    assert "<table" in shown
    assert f"{posterior.mean[0]:.3f}" in shown
    summary = posterior.summary()
    assert summary._repr_html_().startswith("<pre>")
    assert "Verdict: " in summary
    assert posterior.verdict().verdict.capitalize()[:10] in summary


def test_the_page_of_a_diagnosis(method, posterior, tmp_path):
    more = Section("extra", "Something more", ["A sentence <here>."], None, {"a": 1})
    found = diagnose(method, posterior, sections=[more])
    page = found.write(tmp_path).read_text()
    for text in ("How far from all simulations?", "Verdict.", "sd of x", "Something more", "A sentence &lt;here&gt;."):
        assert text in page
    numbers = found.as_json()
    assert numbers["extra"] == {"a": 1}
    assert numbers["verdict"]["outcome"] in ("consistent", "consistent_but")
    assert numbers["check"]["verdict"] == found.reach.verdict
    assert (tmp_path / "predictive.png").is_file()
