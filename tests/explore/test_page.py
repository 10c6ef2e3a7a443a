"""What the page shows, and what it does if something on it is moved: without a browser."""

from concurrent.futures import Future

import numpy as np
import pytest
from bokeh.document import Document

from nsmbayes.errors import ConvergenceError
from nsmbayes.explore import DrawsAnswer, GaussianAnswer, drawing, explorer_of
from nsmbayes.explore.page import FITTING, LIVE, RESTED, Page

HOSTILE = "<img src=x onerror=alert(1)>"


class Sometime:
    """An executor that runs what it was given when it is told to."""

    def __init__(self):
        self.waiting = []

    def submit(self, call, *arguments):
        future = Future()
        self.waiting.append((future, call, arguments))
        return future

    def run(self, error=None):
        future, call, arguments = self.waiting.pop(0)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(call(*arguments))


class Opened:
    """A page in a document whose callbacks are run by hand."""

    def __init__(self, make, d_x=1, **options):
        names = tuple(f"{HOSTILE}{j}" for j in range(2))
        method = make(d_x, 2, noise_levels=(0.2, 0.8), excess=None, parameter_names=names, **options)
        x = 0.5 * np.random.default_rng(1).standard_normal((30, d_x))
        self.explorer, self.executor, self.document = explorer_of(method, x, beta=0.3), Sometime(), Document()
        self.page = Page(self.document, self.explorer, self.executor, title=HOSTILE)

    def __getitem__(self, name):
        return self.document.get_model_by_name(name)

    def words(self, name):
        return self["words"].data[name][0]

    def drag(self, row, x, y=0.0, *, done=False, serial=1):
        self["moved"].data = {"serial": [serial], "row": [row], "x": [x], "y": [y], "done": [done]}

    def tick(self):
        """Run what is due: callbacks of the document, once each."""
        for callback in list(self.document.session_callbacks):
            if callback in self.document.session_callbacks:  # another one may have taken it back
                callback.callback()


@pytest.fixture
def opened(random_method):
    return Opened(random_method)


def test_a_drag_is_answered_at_once(opened):
    before, weights = opened["curves"].data["own-0"].copy(), opened["answered"].data["weight"].copy()
    opened.drag(4, 3.0, serial=7)
    assert not np.array_equal(opened["curves"].data["own-0"], before)
    after = opened["answered"].data
    assert after["serial"][0] == 7
    assert after["weight"][4] < 0.5 * weights[4]
    np.testing.assert_array_equal(np.delete(after["weight"], 4), np.delete(weights, 4))
    assert opened.words("status").startswith(LIVE)
    assert not opened.executor.waiting
    assert opened.explorer.x[4] != 3.0  # others have the data as they were


def test_when_let_go_everything_is_fitted_again(opened):
    opened.drag(4, 3.0, done=True)
    assert opened["row"].value == 4
    assert opened["across_value"].value == 3.0
    opened.tick()  # after the pause
    assert opened.words("status") == FITTING
    shown = opened["curves"].data["own-0"].copy()
    opened.executor.run()
    opened.tick()
    assert opened.words("status").startswith(RESTED)
    assert not np.array_equal(opened["curves"].data["own-0"], shown)


def test_a_fit_that_was_overtaken_is_not_shown(opened):
    opened.drag(4, 3.0, done=True)
    opened.tick()
    opened.drag(4, 2.0, done=True, serial=2)
    opened.executor.run()
    opened.tick()  # the first fit comes, and the pause after the second drag ends
    assert opened.words("status") == FITTING
    opened.executor.run()
    opened.tick()
    assert opened.words("status").startswith(RESTED)


def test_a_fit_that_fails_is_told(opened):
    opened.drag(4, 3.0, done=True)
    opened.tick()
    opened.executor.run(ConvergenceError("no <b>way</b>"))
    opened.tick()
    assert opened.words("status") == "It could not be fitted again: no &lt;b&gt;way&lt;/b&gt;"


@pytest.mark.parametrize("row", [-1, 30, 10**9])
def test_a_row_that_is_not_there_is_answered_and_moves_nothing(opened, row):
    before = opened["answered"].data["weight"].copy()
    opened.drag(row, 3.0)
    opened.drag(0, float("nan"), serial=2)
    np.testing.assert_array_equal(opened["answered"].data["weight"], before)


def test_numbers_move_a_row_without_a_pointer(opened):
    opened["row"].value = 9
    assert opened["across_value"].value == pytest.approx(opened.explorer.x[9, 0], rel=1e-5)
    before = opened["answered"].data["weight"][9]
    opened["across_value"].value = 4.0
    assert opened["points"].data["x"][9] == 4.0
    assert opened["answered"].data["weight"][9] < before
    opened["across_value"].value = None  # as while somebody types
    assert opened["points"].data["x"][9] == 4.0


def test_sliders_move_the_posterior(opened):
    for name, value in (("shift", 2.0), ("width", -1.0), ("zeta", 3.0), ("beta", -1.5)):
        before = opened.words("table")
        opened[name].value = value
        assert opened.words("table") == before  # answered with the next tick, all at once
        opened.tick()
        assert opened.words("table") != before, name
    opened["parameter"].value = "1"
    assert (opened["shift"].value, opened["width"].value) == (0, 0)
    opened["parameter"].value = "0"
    assert (opened["shift"].value, opened["width"].value) == (2.0, -1.0)


def test_one_can_start_again(opened):
    table, certificate = opened.words("table"), opened.words("certificate")
    opened["shift"].value = 2.0
    opened.drag(4, 3.0, done=True)
    opened.tick()
    opened.page._on_reset()
    assert opened.words("table") == table
    assert opened.words("certificate") == certificate
    assert opened["shift"].value == 0
    assert opened["points"].data["x"][4] == opened.explorer.x[4, 0]


def test_what_a_model_has_not_cannot_be_set(opened):
    assert opened["trimmed"].disabled
    assert not opened["zeta"].disabled


def test_two_of_several_columns_are_shown(random_method):
    opened = Opened(random_method, d_x=3)
    x = opened.explorer.x
    np.testing.assert_array_equal(opened["points"].data["y"], x[:, 1])
    opened["up"].value = "2"
    np.testing.assert_array_equal(opened["points"].data["y"], x[:, 2])
    opened.drag(4, 1.0, 5.0, done=True)
    assert (opened["across_value"].value, opened["up_value"].value) == (1.0, 5.0)
    opened["across"].value = "1"
    assert opened["across_value"].value == pytest.approx(x[4, 1], rel=1e-5)
    assert opened["up_value"].value == 5.0


def test_names_of_others_are_text(opened):
    assert HOSTILE not in "".join(opened.words(name) for name in opened["words"].data)
    assert "&lt;img" in opened.words("title")
    assert "&lt;img" in opened.words("table")


def test_grids_follow_and_never_shrink(opened):
    view = opened.explorer.view(opened.explorer.x, opened.explorer.choices)
    grids = drawing.Grids(view)
    first = grids.hold(view)
    away = view._replace(answers={"a": GaussianAnswer(view.prior.mean + 3 * view.prior.std, view.prior.std / 100)})
    wider = grids.hold(away)
    assert all(b[0] <= a[0] and b[-1] > a[-1] for a, b in zip(first, wider, strict=True))
    assert all(map(np.array_equal, grids.hold(view), wider))
    beyond = view._replace(answers={"a": GaussianAnswer(np.full(2, 1e9), np.ones(2)), "b": None})
    limit = view.prior.mean + 6 * view.prior.std
    np.testing.assert_allclose([grid[-1] for grid in grids.hold(beyond)], limit)
    heights = drawing.curves(view, first)
    assert max(heights["own-0"]) == 1
    assert np.isnan(heights["NLE-0"]).all()


def test_curves_of_draws_are_densities():
    rng = np.random.default_rng(0)
    draws, grid = rng.standard_normal((4000, 1)), np.linspace(-6, 6, 201)
    answer = DrawsAnswer(draws, 0.8 * draws[:, 0])
    found, exact = answer.density(0, grid), GaussianAnswer(np.array([0.8]), np.ones(1)).density(0, grid)
    assert np.abs(found - exact).max() < 0.05
    assert found.sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=0.01)
    narrow = DrawsAnswer(np.full((100, 1), 0.123))
    assert np.isfinite(narrow.density(0, grid)).all()
