"""The page of the documentation that needs no server says what the package says."""

import importlib.util
import json
import re

import pytest
from support import browser as web
from support.docs_scripts import ROOT

_spec = importlib.util.spec_from_file_location("make_explore", ROOT / "docs" / "make_explore.py")
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


def test_the_page_is_small_and_whole():
    text = script.PAGE.read_text(encoding="utf-8")
    assert len(text) < 1000 * script.MOST_KB
    model = json.dumps(script.read(), separators=(",", ":"))
    assert text == script.TEMPLATE.read_text(encoding="utf-8").replace("/*MODEL*/", model)
    assert not re.search(r"(?:src|href)=|url\(|fetch\(|import\(", text)
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}


def test_its_tables_give_the_posterior_of_the_package():
    found = script.read()
    assert len(found["checks"]) == 3
    assert max(script.errors(found)) < script.WITHIN
    found["checks"][0]["mean"][0] += 0.1  # the comparison can fail
    assert max(script.errors(found)) > script.WITHIN


@pytest.mark.slow
@pytest.mark.skipif(bool(web.missing()), reason=f"{web.missing()}: apt-get install chromium chromium-driver")
def test_the_browser_computes_the_same():
    from selenium.webdriver.common.keys import Keys

    found = script.read()
    with web.browser(390, 1400) as driver:  # as wide as a phone
        driver.get(script.PAGE.as_uri())
        for check in found["checks"]:
            driver.find_element("id", "reset").click()
            moments = driver.execute_script(
                "document.getElementById('zeta').value = arguments[2];"
                "return window.explore.set(arguments[0], arguments[1]).own.map(one => [one.mean, one.sd])",
                *(check[name] for name in ("row", "x", "zeta")),
            )
            for (mean, sd), exact_mean, exact_sd in zip(moments, check["mean"], check["sd"], strict=True):
                assert abs(mean - exact_mean) < script.WITHIN * exact_sd
                assert abs(sd / exact_sd - 1) < script.WITHIN
        driver.find_element("id", "reset").click()
        row = driver.find_element("css selector", "circle.row")
        before = float(row.get_attribute("aria-valuenow"))
        row.send_keys(Keys.ARROW_RIGHT)
        assert float(row.get_attribute("aria-valuenow")) > before
        assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert web.complaints(driver) == []
