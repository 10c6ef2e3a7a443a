"""Methods that learn from campaigns: the same as from arrays, from failures only if asked, and more than fits."""

import numpy as np
import pytest
from support.functions import noisy

import nsmbayes as nsm
from nsmbayes.calls import RowStatus

PRIOR = nsm.GaussianPrior(mean=[0.0, 1.0], covariance=[1.0, 0.25])
BRIEF = nsm.TrainingSettings(max_epochs=2, batch_size=100)


def sometimes(rng, theta):
    if theta[0] > 2:
        raise ValueError("no")
    return noisy(rng, theta)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return nsm.simulate(noisy, PRIOR, 2000, out=tmp_path_factory.mktemp("good") / "c.zarr", progress=False)


@pytest.fixture(scope="module")
def leaky(tmp_path_factory):
    out = tmp_path_factory.mktemp("leaky") / "c.zarr"
    return nsm.simulate(sometimes, PRIOR, 2000, out=out, max_failures=0.2, progress=False)


def trained(*simulations, **options):
    method = nsm.NSMBayesConj(PRIOR, hidden=8, grid_steps=(0.1, 0)).append_simulations(*simulations, **options)
    return method.train(0, settings=BRIEF, progress=False)


def test_a_small_campaign_is_trained_on_like_its_arrays(good):
    one, other = trained(str(good.path)), trained(*good.arrays())
    assert np.array_equal(one.history.train_loss, other.history.train_loss)
    assert one.simulations_used == 2000
    assert one.dropped == 0


def test_a_campaign_is_streamed_through_training(good):
    """Blocks give losses near those of training in memory, and every row is seen once per epoch."""
    streamed, whole = trained(good, stream=True), trained(good)
    assert streamed.simulations_used == 2000
    assert np.allclose(streamed.history.validation_loss, whole.history.validation_loss, rtol=0.3)
    density = nsm.NLE(PRIOR, surrogate=nsm.MDN(hidden=(8,))).append_simulations(good, stream=True)
    density.train(0, settings=BRIEF, progress=False)
    x = good.arrays()[1]
    assert np.array_equal(density.x_range, [x.min(axis=0), x.max(axis=0)])
    data = streamed._data(0)
    stream = data.stream(_Unscaled(), BRIEF)
    rows = [np.concatenate([t for t, _ in blocks]) for blocks in (stream.training(0), stream.training(1))]
    held_out = np.concatenate([t for t, _ in stream.held_out()])
    theta = good.arrays()[0].astype(np.float32)
    for order in rows:
        assert np.array_equal(np.sort(np.concatenate([order, held_out]), axis=0), np.sort(theta, axis=0))
    assert not np.array_equal(*rows)
    assert stream.m == len(rows[0])


class _Unscaled:
    class theta:
        standardise = staticmethod(np.asarray)

    x = theta


def test_failed_rows_are_never_dropped_silently(leaky, tmp_path):
    failed = len(leaky.failures().rows)
    with pytest.raises(nsm.InputError, match=f"has {failed} failed rows of 2,000.*pass drop_failures=True"):
        trained(leaky)
    method = trained(leaky, drop_failures=True)
    assert method.dropped == pytest.approx(failed / 2000)
    assert method.simulations_used == 2000 - failed
    streamed = nsm.NLE(PRIOR).append_simulations(leaky, drop_failures=True, stream=True)
    assert streamed.dropped == pytest.approx(failed / 2000)
    assert streamed.simulations_used == 2000 - failed
    said = f"{failed / 2000:.2%} of the simulations failed and were dropped"
    x = good_data()
    posterior = nsm.load(method.save(tmp_path / "model")).build_posterior(x, beta=1.0)
    assert said in posterior.summary()
    assert said in nsm.load(posterior.save(tmp_path / "posterior")).summary()
    adopted = nsm.NSMBayesConj(PRIOR, hidden=8, grid_steps=(0.1, 0)).adopt(method)
    assert adopted.dropped == method.dropped


def good_data():
    return np.random.default_rng(0).standard_normal((40, 2)) * 0.3 + [0.0, 1.0]


def test_fractions_add_up_over_campaigns(good, leaky):
    failed = len(leaky.failures().rows)
    method = nsm.NLE(PRIOR).append_simulations(leaky, drop_failures=True).append_simulations(good)
    assert method.dropped == pytest.approx(failed / 4000)


def test_a_campaign_must_fit_the_method(good):
    with pytest.raises(nsm.InputError, match="has 2 parameters; the prior has 1"):
        nsm.NLE(nsm.GaussianPrior([0.0], [1.0])).append_simulations(good)
    with pytest.raises(nsm.InputError, match="cannot be mixed with arrays"):
        nsm.NLE(PRIOR).append_simulations(good, stream=True).append_simulations(*good.arrays()).train()
    with pytest.raises(nsm.InputError, match="is not a campaign"):
        nsm.NLE(PRIOR).append_simulations("no-such.zarr")


def test_the_picture_shows_where_rows_failed(leaky):
    figure = nsm.plotting.plot_failures(leaky)
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert labels == [f"valid ({2000 - len(leaky.failures().rows):,})", f"failed ({len(leaky.failures().rows):,})"]
    assert {RowStatus(int(value)) for value in np.unique(leaky.rows(0, 2000).status)} == {1, 2}
