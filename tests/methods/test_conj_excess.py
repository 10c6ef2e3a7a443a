"""NSM-Bayes-conj and observations that are too many, and columns with grid steps."""

import numpy as np
import pytest
from support.reference import random_family

import nsmbayes as nsm
from nsmbayes import serialisation
from nsmbayes._internal.random import dequantised
from nsmbayes.losses.statistics import DataStatistics, total_loss
from nsmbayes.plotting import plot_excess
from nsmbayes.report import write_report

PRIOR = nsm.GaussianPrior(np.zeros(1), 4 * np.eye(1))


@pytest.fixture(scope="module")
def method():
    """Normal observations of unknown mean."""
    theta = PRIOR.sample(3000, seed=0)
    x = theta + np.random.default_rng(1).standard_normal((3000, 1))
    made = nsm.NSMBayesConj(PRIOR, hidden=16).append_simulations(theta, x)
    return made.train(0, settings=nsm.TrainingSettings(max_epochs=8, batch_size=256), progress=False)


def clustered(n=80):
    x = np.random.default_rng(2).standard_normal((n, 1))
    x[: n // 4] = 5 + 0.1 * x[: n // 4]
    return x


def test_a_cluster_is_distrusted_for_its_number_and_no_longer_pulls(method):
    x, by_distance = clustered(), nsm.NSMBayesConj(PRIOR, hidden=16, excess=None)
    posterior = method.build_posterior(x, beta=0.5)
    assert posterior.weights[:20].max() < 0.1 < 0.9 < np.median(posterior.weights[20:])
    assert all("too many" in row.reason for row in posterior.outliers(20))
    assert "more than the model explains" in posterior.summary()
    assert any("factors by number" in note for note in posterior.certificate.notes)
    assert posterior.certificate.refitted is None  # without the factors it would be another posterior
    assert method.build_posterior(x[20:], beta=0.5).certificate.refitted < 0.5
    with pytest.raises(nsm.InputError, match="another kind"):
        by_distance.adopt(method)
    plain = by_distance.adopt(method.family).build_posterior(x, beta=0.5)
    good = by_distance.build_posterior(x[20:], beta=0.5)
    assert abs(posterior.mean - good.mean).item() < 0.2 * abs(plain.mean - good.mean).item()


def test_the_factor_multiplies_the_loss_of_each_observation(method):
    posterior = method.build_posterior(clustered(), beta=0.5)
    statistics, factor = posterior.statistics, posterior.suspects.factor.values
    one_each = DataStatistics.of(statistics.recipe, posterior.x, posterior.suspects.centre)
    losses = [np.concatenate(parts) for parts in zip(*one_each.each(), strict=True)]
    counted = [np.concatenate(parts) for parts in zip(*statistics.each(), strict=True)]
    for one, some, total in zip(losses, counted, statistics.total, strict=True):
        np.testing.assert_allclose(np.tensordot(factor, one, 1), total, rtol=1e-9)
        np.testing.assert_allclose(some.sum(axis=0), total, rtol=1e-9)


def test_it_is_saved_and_new_observations_count_by_distance(method, tmp_path):
    posterior = method.build_posterior(clustered(), beta=0.5)
    again = nsm.load(method.save(tmp_path / "model"))
    np.testing.assert_allclose(again.build_posterior(clustered(), beta=0.5).mean, posterior.mean, rtol=1e-9)
    for refit in (False, True):
        updated = posterior.update([[5.0], [0.1]], refit=refit)
        np.testing.assert_allclose(updated.weights[80:], updated.weight_at([[5.0], [0.1]]))
        assert len(updated.outliers(82)) == 82


def test_without_a_density_the_posterior_says_so():
    adopted = nsm.NSMBayesConj(PRIOR, hidden=16).adopt(random_family(1, 1, noisy=True))
    assert "by distance alone" in adopted.build_posterior(clustered(), beta=0.5).summary()
    assert (
        "by distance alone"
        not in nsm.NSMBayesConj(PRIOR, hidden=16, excess=None)
        .adopt(random_family(1, 1, noisy=True))
        .build_posterior(clustered(), beta=0.5)
        .summary()
    )


def test_observations_on_a_grid_get_the_noise_that_simulations_got():
    x = np.random.default_rng(3).poisson(4, (60, 1)).astype(float)
    adopted = nsm.NSMBayesConj(PRIOR, hidden=16, grid_steps=(1.0,)).adopt(random_family(1, 1, noisy=True))
    posterior = adopted.build_posterior(x, beta=0.5)
    np.testing.assert_array_equal(posterior.x, x)
    noisy = dequantised(x, (1.0,), 0, 1)
    assert 0.4 < np.abs(noisy - x).max() <= 0.5
    np.testing.assert_allclose(posterior.statistics.total.A, total_loss(posterior.statistics.loss, noisy).A, rtol=1e-9)
    more = posterior.update(x[:10])
    each = [np.concatenate(parts) for parts in zip(*more.statistics.each(), strict=True)]
    np.testing.assert_allclose(each[0].sum(axis=0), more.statistics.total.A, rtol=1e-9)


def test_models_saved_before_go_on_by_distance():
    header, _ = serialisation.MIGRATIONS[5]({"format": 5, "method": "nsm-bayes-conj", "config": {}}, {})
    assert header == {"format": 6, "method": "nsm-bayes-conj", "config": {"excess": None}}


def test_the_report_shows_data_model_and_excess(method, tmp_path):
    posterior = method.build_posterior(clustered(), beta=0.5)
    page = write_report(posterior, tmp_path).read_text()
    assert "20 of 80 observations have a weight below 0.1: " in page
    assert {"excess.png", "excess.svg"} <= {path.name for path in tmp_path.iterdir()}
    (axis,) = plot_excess(posterior).axes
    (line,) = axis.lines
    x, heights = np.asarray(line.get_data())
    assert abs(x[heights.argmax()]) < 0.7  # the model stays where the bulk is
    inside = (x[:-1] > -3) & (x[:-1] < 3)
    width = axis.patches[0].get_width()
    counted = np.sum((0.5 * (heights[1:] + heights[:-1]) * np.diff(x))[inside]) / width
    assert counted == pytest.approx(60, rel=0.1)  # 60 observations count
    with pytest.raises(nsm.InputError, match="not compared with its model"):
        plot_excess(nsm.NSMBayesConj(PRIOR, hidden=16, excess=None).adopt(method.family).build_posterior(clustered()))


@pytest.mark.parametrize("kind", [nsm.NLE, nsm.NSMBayesConj])
def test_whole_numbers_that_were_not_declared_are_named(kind):
    theta = PRIOR.sample(300, seed=0)
    x = np.concatenate([np.random.default_rng(0).poisson(np.exp(theta)), theta], axis=1)
    settings = nsm.TrainingSettings(max_epochs=1)
    with pytest.warns(UserWarning, match=r"Column 0 .* whole numbers .* grid_steps=\(1.0, 0.0\)") as said:
        kind(PRIOR).append_simulations(theta, x).train(settings=settings, progress=False)
    assert len(said) == 1
