"""What a new user tries first: one posterior in a plot, a table as a DataFrame, other data, a simulator called."""

import inspect
import pydoc

import numpy as np
import pandas as pd
import pytest
from support.builders import GAUSSIAN, conjugate, general, mdn
from support.effort import PriorSampler

import nsmbayes as nsm
from nsmbayes.plotting import plot_marginals, plot_pairs

POSITIONS = 0.5 + 0.3 * np.random.default_rng(0).standard_normal((2, 500, 2))


@pytest.fixture(scope="module")
def drawn():
    return general(mdn(1), positions=POSITIONS)


@pytest.mark.parametrize(
    ("verb", "argument", "way"),
    [
        ("update", np.zeros((3, 1)), r"method\.build_posterior\(x_old_and_new\)"),
        ("with_prior", GAUSSIAN, r"adopt\(method\)"),
        ("with_beta", 0.5, r"method\.build_posterior\(x, beta=beta\)"),
    ],
)
def test_what_draws_cannot_do_names_the_way(drawn, verb, argument, way):
    with pytest.raises(nsm.InputError, match=way):
        getattr(drawn, verb)(argument)
    assert getattr(conjugate(1), verb)(argument).dim == 2


def test_many_data_sets_one_after_the_other():
    method = nsm.NLE(GAUSSIAN, surrogate=nsm.MDN(components=2, hidden=(4,)), sampler=PriorSampler())
    theta = GAUSSIAN.sample(100, seed=0)
    method.append_simulations(theta, theta[:, :1]).train(settings=nsm.TrainingSettings(max_epochs=1), progress=False)
    sets = [theta[:5, :1], theta[:8, :1]]
    batch = method.build_posteriors(sets, beta=0.5, progress=False)
    assert [each.n for each in batch] == [5, 8]
    np.testing.assert_array_equal(batch[1].mean, method.build_posterior(sets[1], beta=0.5).mean)
    with pytest.raises(nsm.InputError, match="at least one"):
        method.build_posteriors([])


def test_the_table_as_a_frame(drawn):
    frame = drawn.summary(as_frame=True)
    assert isinstance(frame, pd.DataFrame)
    assert frame.index.tolist() == list(drawn.parameter_names)
    assert frame.columns.tolist()[:5] == ["mean", "sd", "2.5 %", "97.5 %", "prior sd"]
    np.testing.assert_allclose(frame["mean"], drawn.mean)
    np.testing.assert_allclose(frame["97.5 %"], [drawn.interval(j)[1] for j in range(2)])
    for column in ("R-hat", "ESS"):
        assert np.isfinite(frame[column]).all()
        assert column in drawn.summary()


@pytest.mark.parametrize("plot", [plot_pairs, plot_marginals])
def test_one_posterior_is_enough_for_a_plot(drawn, plot):
    for given in (drawn, [drawn], {drawn.label: drawn}):
        assert drawn.label in [text for axis in plot(given).axes for text in axis.get_legend_handles_labels()[1]]
    for wrong in ([], {"a": 3}, [3]):
        with pytest.raises(nsm.InputError, match="`posteriors`"):
            plot(wrong)


def test_a_simulator_is_a_function():
    simulator = nsm.NumpySimulator(lambda rng, theta: theta + rng.standard_normal(2))
    theta = np.arange(6.0).reshape(3, 2)
    x = simulator(theta, seed=1)
    assert x.shape == (3, 2)
    np.testing.assert_array_equal(x, simulator(theta, seed=1))
    np.testing.assert_array_equal(x[0], simulator(theta[0], seed=1))
    assert (x != simulator(theta, seed=2)).all()
    with pytest.raises(nsm.InputError, match="`theta`"):
        simulator(np.zeros((2, 2, 2)))


@pytest.mark.parametrize("name", ["report", "diagnostics", "interop", "plotting"])
def test_help_lists_the_functions(name):
    module = getattr(nsm, name, None) or __import__(f"nsmbayes.{name}", fromlist=["x"])
    functions = {each for each, value in vars(module).items() if inspect.isfunction(value) and each[0] != "_"}
    text = pydoc.plain(pydoc.render_doc(module))
    assert functions
    assert all(f" {each}(" in text for each in functions)
