"""The page of `nsmbayes explore` in a real browser: `make test-browser`."""

import numpy as np
import pytest
from support import browser as web

import nsmbayes as nsm
from nsmbayes._internal.columns import Table
from nsmbayes.explore.page import RESTED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(web.missing()), reason=f"{web.missing()}: apt-get install chromium chromium-driver"),
]
HOSTILE = "<img src=x onerror=window.hacked=1>"


def _saved(folder, kind, task, x_names, *, simulations=4000, epochs=3):
    settings = nsm.TrainingSettings(max_epochs=epochs)
    method = kind(task.prior, parameter_names=task.parameter_names, x_names=x_names, grid_steps=task.grid_steps)
    theta, x = task.simulate(simulations, seed=0, progress=False)
    method.append_simulations(theta, Table(x, x_names)).train(0, settings=settings, progress=False)
    method.save(folder / "model")
    lines = [",".join(x_names), *(",".join(map(repr, row)) for row in task.observe(60, seed=1).x.tolist())]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    return folder / "model", folder / "data.csv"


@pytest.fixture(scope="module")
def one_column(tmp_path_factory):
    task = nsm.tasks.get("gnk")
    files = _saved(tmp_path_factory.mktemp("gnk"), nsm.NSMBayesConj, task, (HOSTILE,))
    with web.served(*files, "--beta", "0.3") as address, web.browser() as driver:
        yield driver, address


@pytest.fixture(scope="module")
def several_columns(tmp_path_factory):
    task = nsm.tasks.get("sir")
    folder = tmp_path_factory.mktemp("sir")
    files = _saved(folder, nsm.NSMBayesAmortised, task, task.x_names, simulations=20_000, epochs=20)
    with web.served(*files, "--beta", "0.5") as address, web.browser() as driver:
        yield driver, address


def heaviest(driver):
    """Of the heavy rows, the one that stands farthest from light ones, so that the pointer takes none of them."""
    script = (
        "const p = Bokeh.documents[0].get_model_by_name('points').data;"
        " return [p.x, p.y, p.weight].map(a => Array.from(a))"
    )
    *at, weight = np.array(driver.execute_script(script))
    gaps = sum(((a[:, None] - a) / max(np.ptp(a), 1e-9)) ** 2 for a in at)
    heavy = weight > 0.8 * weight.max()
    alone = np.where(heavy, np.inf, gaps).min(axis=1) + 1e-12 * weight
    return int(np.argmax(np.where(heavy, alone, -1)))


def places(driver):
    """Where the rows are across, and their weights."""
    script = (
        "const p = Bokeh.documents[0].get_model_by_name('points').data; return [p.x, p.weight].map(a => Array.from(a))"
    )
    return np.array(driver.execute_script(script))


def dragged(driver, **pixels):
    """The one row that has moved after a drag of a heavy one, before and after: (place, weight) each."""
    before = places(driver)
    web.drag(driver, heaviest(driver), **pixels)
    rested(driver)
    after = places(driver)
    (row,) = np.flatnonzero(before[0] != after[0])
    return before[:, row], after[:, row]


def rested(driver):
    web.wait(driver, f"return document.getElementById('nsm-status').innerText.startsWith('{RESTED[:7]}')")


def test_a_row_is_dragged(one_column):
    driver, address = one_column
    web.opened(driver, address)
    table, picture = web.text(driver, "table"), driver.get_screenshot_as_png()
    before, after = dragged(driver, right=220)
    assert after[0] > before[0]
    assert after[1] < 0.5 * before[1]
    assert web.text(driver, "table") != table
    assert len(web.latencies(driver)) > 3
    assert driver.get_screenshot_as_png() != picture
    assert web.complaints(driver) == []
    assert web.foreign(driver, address) == []
    assert driver.execute_script("return window.hacked === undefined")
    assert "obust" in web.text(driver, "certificate")


def test_all_can_be_done_with_the_keyboard(one_column):
    from selenium.webdriver.common.keys import Keys

    driver, address = one_column
    web.opened(driver, address)
    find = """
    const view = Bokeh.index.find_one(Bokeh.documents[0].get_model_by_name(arguments[0]));
    return view.shadow_el.querySelector("input, .noUi-handle, button, select");
    """
    before = float(places(driver)[0, 0])
    number = driver.execute_script(find, "across_value")
    driver.execute_script("arguments[0].focus()", number)
    number.send_keys(Keys.ARROW_UP)
    web.wait(driver, f"return Bokeh.documents[0].get_model_by_name('points').data.x[0] > {before}")
    rested(driver)
    for name, key in (("shift", Keys.ARROW_RIGHT), ("zeta", Keys.ARROW_RIGHT), ("trimmed", Keys.ARROW_RIGHT)):
        table = web.text(driver, "table")
        handle = driver.execute_script(find, name)
        handle.send_keys(*[key] * 5)
        web.wait(driver, f"return document.getElementById('nsm-table').innerText !== {table!r}")
    web.wait(driver, "return document.getElementById('nsm-table').innerText.includes('trimmed')")
    rested(driver)
    driver.execute_script(find, "reset").send_keys(Keys.ENTER)
    web.wait(driver, f"return Math.abs(Bokeh.documents[0].get_model_by_name('points').data.x[0] - {before}) < 1e-9")
    assert web.complaints(driver) == []


def test_a_page_of_another_origin_gets_nothing(one_column):
    driver, address = one_column
    driver.get("data:text/html,<title>elsewhere</title>")
    script = """
    const done = arguments[1], socket = new WebSocket(arguments[0], ["bokeh", "x"]);
    socket.onopen = () => done("open"); socket.onerror = () => done("refused");
    """
    assert driver.execute_async_script(script, address.replace("http:", "ws:") + "/ws") == "refused"
    driver.get_log("browser")  # which tells of it


def test_two_of_several_columns(several_columns):
    driver, address = several_columns
    web.opened(driver, address)
    table = web.text(driver, "table")
    before, after = dragged(driver, right=120, down=-60)
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert web.text(driver, "table") != table
    driver.execute_script("Bokeh.documents[0].get_model_by_name('up').value = '2'")
    web.wait(driver, "return Bokeh.documents[0].get_model_by_name('up_value').title === 'peak height'")
    assert web.complaints(driver) == []
    assert web.foreign(driver, address) == []
