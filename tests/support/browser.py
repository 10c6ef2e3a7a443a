"""A real browser without a screen, and what tests do in it on the page of `nsmbayes explore`."""

import contextlib
import os
import shutil
import subprocess
import sys
import time

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")


def missing():
    """What is not installed here, or nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    if CHROMIUM is None:
        return "no chromium on this machine"
    return "" if DRIVER is not None else "no chromedriver on this machine"


@contextlib.contextmanager
def browser(width=1260, height=980):
    """A browser; it is closed in the end."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", f"window-size={width},{height}"):
        options.add_argument(f"--{argument}")
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@contextlib.contextmanager
def served(model, data, *options):
    """The address of a page that the command line serves."""
    command = [sys.executable, "-c", "import nsmbayes.cli; nsmbayes.cli.entry()", "explore", str(model), str(data)]
    command += ["--no-browser", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        line = process.stdout.readline().strip()
        if not line.startswith("http://127.0.0.1:"):
            raise RuntimeError(f"the page was not served: {line}\n{process.communicate(timeout=60)[1]}")
        yield line
    finally:
        process.terminate()
        process.communicate(timeout=60)


def wait(driver, script, *, seconds=60):
    """What a script returns, as soon as that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = driver.execute_script(script)
        except Exception as error:
            found, last = None, error
        else:
            last = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not true after {seconds} s: {script} {last or ''}")


def opened(driver, address):
    """Open a page of Bokeh, and wait until it is drawn."""
    driver.get(address)
    wait(driver, "return window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle")
    wait(driver, "return document.getElementById('nsm-certificate').innerText.length > 10")


def text(driver, name):
    """What is written in one of the places of the page."""
    return driver.execute_script(f"return document.getElementById('nsm-{name}').innerText")


PLACE = """
const doc = Bokeh.documents[0], view = Bokeh.index.find_one(doc.get_model_by_name("data"));
const points = doc.get_model_by_name("points").data, box = view.el.getBoundingClientRect(), i = arguments[0];
return [box.left + view.frame.x_scale.compute(points.x[i]), box.top + view.frame.y_scale.compute(points.y[i])];
"""


def drag(driver, row, right, down=0, *, steps=20, pause=0.03):
    """Drag a row so many pixels, as a pointer would; the button is let go in the end."""
    from selenium.webdriver.common.action_chains import ActionChains

    x, y = driver.execute_script(PLACE, row)
    actions = ActionChains(driver, duration=10)
    pointer = actions.w3c_actions.pointer_action
    pointer.move_to_location(round(x), round(y))
    pointer.pointer_down()
    for k in range(1, steps + 1):
        pointer.move_to_location(round(x + right * k / steps), round(y + down * k / steps))
        pointer.pause(pause)
    pointer.pointer_up()
    actions.perform()


def latencies(driver):
    """Milliseconds from a place of the pointer to the curves that belong to it, drawn."""
    return driver.execute_script("return window.nsmExplore.latencies")


def complaints(driver):
    """What the console has beyond information."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] not in ("INFO", "DEBUG")]


def foreign(driver, address):
    """What was loaded from elsewhere."""
    loaded = driver.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    base = address.rpartition("/")[0]
    return [name for name in loaded if not name.startswith((base, "data:", "blob:"))]
