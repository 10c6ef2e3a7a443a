"""The one-page report."""

import base64
import re
import shutil
import subprocess
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread
from scipy import stats
from support.html import Page, ink

from nsmbayes.plotting import plot_weights
from nsmbayes.posteriors import LOW_WEIGHT
from nsmbayes.posteriors.outliers import HEAD
from nsmbayes.report import write_report

HOME = {"home": "see https://example.org for more"}
HOSTILE = '<b>&"</b><script>alert(1)</script>'


@pytest.fixture(scope="module")
def smallest(posterior, tmp_path_factory):
    """The page of one column and one parameter."""
    return write_report(posterior(1, 1), tmp_path_factory.mktemp("smallest") / "new" / "folder", title="A title")


@pytest.fixture(scope="module")
def numbers(posterior, tmp_path_factory):
    """A posterior, the truth and the facts that are told beside it, and the page."""
    subject, clean = posterior(1, 2, parameter_names=("a", "b")), posterior(1, 2, far=0.0)
    truth = np.array([0.1234, -5.4321])
    facts = {"simulations": "1,234", "a < b": "c & d"}
    folder, told = tmp_path_factory.mktemp("numbers"), {"truth": truth, "facts": facts}
    return subject, truth, facts, Page(write_report(subject, folder, comparisons={"clean": clean}, **told))


@pytest.fixture(scope="module")
def calibrated(posterior, tmp_path_factory):
    """A posterior with a calibrated learning rate, and its page."""
    subject, folder = posterior(1, 2, beta=None), tmp_path_factory.mktemp("calibrated")
    return subject, write_report(subject, folder, facts=HOME)


@pytest.mark.parametrize(("d_x", "d_theta"), [(1, 1), (3, 6)])
def test_figures_and_page_for_every_size(d_x, d_theta, posterior, smallest, tmp_path):
    folder = tmp_path / "new" / "folder" if d_theta > 1 else smallest.parent
    page = write_report(posterior(d_x, d_theta), folder, title="A title") if d_theta > 1 else smallest
    assert page == folder / "report.html"
    assert {path.name for path in page.parent.iterdir()} == {  # no calibration, so no figure of it
        "report.html", "weights.png", "weights.svg", "marginals.png", "marginals.svg",
        *(("pairs.png", "pairs.svg") if d_theta > 1 else ()),
    }  # fmt: skip
    names = ("weights", "marginals", "pairs") if d_theta > 1 else ("weights", "marginals")
    for name in names:
        assert 0.01 < ink(imread(page.parent / f"{name}.png")) < 0.5
        assert ElementTree.parse(page.parent / f"{name}.svg").getroot().tag.endswith("svg")
    parsed = Page(page)
    assert parsed.tags.count("svg") == parsed.tags.count("figure") == len(names)
    assert "A title" in parsed.text
    assert f"50 observations, {d_theta} parameter{'s' if d_theta > 1 else ''}, β = 0.5" in "".join(parsed.text)
    assert "5 of 50 observations have a weight below 0.1: 5 lie far" in "".join(parsed.text)


def test_the_page_holds_the_numbers(numbers):
    subject, truth, facts, page = numbers
    for j, name in enumerate("ab"):
        mean, std, prior = subject.mean[j], subject.std[j], subject.prior
        reach = stats.norm.ppf(0.975) * std
        numbers = [mean, std, mean - reach, mean + reach, prior.mean[j], prior.std[j], truth[j]]
        assert page.row(name) == [name, *(f"{number:.3f}" for number in numbers)]
    assert list(HEAD) in page.rows
    order = np.argsort(subject.weights)
    influence = subject.influence()
    for i in order[:15]:
        value, weight = subject.x[i, 0], subject.weights[i]
        reason = "far from the bulk" if weight < LOW_WEIGHT else ""
        assert page.row(str(i)) == [str(i), f"{value:.4g}", f"{weight:.2g}", reason, f"{influence[i]:.2g}"]
    assert str(order[15]) not in [row[0] for row in page.rows if row]
    assert [page.row(key)[1] for key in facts] == list(facts.values())


def test_the_page_says_what_is_guaranteed(posterior, numbers, tmp_path):
    robust, _, _, page_of_robust = numbers
    fragile = posterior(1, 1, scatter="sample")
    for shown, page in ((robust, page_of_robust), (fragile, Page(write_report(fragile, tmp_path)))):
        assert shown.certificate.robust == (shown is robust)
        assert shown.certificate.verdict in page.text
        for name, check in shown.certificate.checks.items():
            assert [name, {True: "holds", False: "fails", None: "not needed"}[check.holds], check.why] in page.rows
        for note in shown.certificate.notes:
            assert note in page.text
        assert (("p", "class", "box warning") in page.attributes) == (shown is fragile)


def test_nothing_is_distrusted_where_there_is_no_outlier(random_method, tmp_path):
    x = np.linspace(-1.0, 1.0, 50)[:, None]
    page = Page(write_report(random_method(1, 1).build_posterior(x, beta=1.0), tmp_path))
    assert "No observation is distrusted" in "".join(page.text)


def test_the_page_warns_of_chains_that_have_not_converged(posterior, sampled, tmp_path):
    """Of one that has, nothing is said."""
    good, bad = (sampled(np.ones((3, 1)), 1, r_hat=r_hat) for r_hat in (1.0, 1.3))
    page = Page(write_report(posterior(1, 1), tmp_path, comparisons={"good": good, "a <b> c": bad}))
    assert "".join(page.text).count("converged") == 1
    assert "The chains of the a <b> c posterior have not converged" in "".join(page.text)


def test_the_page_is_self_contained(calibrated):
    """No script, no image, no style sheet: all addresses are names of namespaces or point into the page itself."""
    subject, path = calibrated
    page = Page(path)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"} & set(page.tags)
    for tag, name, value in page.attributes:
        if name.startswith("xmlns"):
            continue
        head, _, picture = value.partition("data:image/png;base64,")
        if picture and not head:  # pixels, whose letters may by chance look like an address
            assert base64.b64decode("".join(picture.split()), validate=True).startswith(b"\x89PNG"), (tag, name)
            continue
        assert "//" not in value, (tag, name, value)
        assert not name.startswith("on"), (tag, name, value)
        if name.endswith("href") or name in ("src", "action", "data"):
            assert value.startswith(("#", "data:")), (tag, name, value)
    assert (path.parent / "calibration.png").is_file()
    assert subject.calibration.describe() in " ".join(page.text)
    text = path.read_text()
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) > 50
    assert len(ids) == len(set(ids))
    targets = {value for _, name, value in page.attributes if name.endswith("href") and value.startswith("#")}
    targets |= set(re.findall(r"url\((#[^)]*)\)", text))
    assert len(targets) > 10
    assert {target[1:] for target in targets} <= set(ids)


def test_hostile_names_stay_text(posterior, tmp_path):
    names = (HOSTILE, "$a^$", r"$\theta_3$", "_b", "a\nb", "$")
    path = write_report(
        posterior(1, 6, parameter_names=names), tmp_path, title=HOSTILE, facts={HOSTILE: HOSTILE},
        comparisons={HOSTILE: posterior(1, 6, seed=1)},
    )  # fmt: skip
    page = Page(path)
    assert not {"b", "script"} & set(page.tags)
    shown = [name.replace("\n", r"\n") for name in names]
    assert [row[0] for row in page.rows if row and row[0] in shown] == [*shown, HOSTILE]
    assert page.row("$a^$")[1] == f"{posterior(1, 6).mean[1]:.3f}"
    assert "".join(page.text).count(HOSTILE) == 5  # title, heading, parameter, and both cells of the fact
    for figure in ("weights", "marginals"):
        ElementTree.parse(tmp_path / f"{figure}.svg")


def test_many_observations_make_no_giant_page(posterior, smallest, tmp_path):
    large = write_report(posterior(1, 1, n=5000), tmp_path, title="A title")
    assert large.stat().st_size < 2 * smallest.stat().st_size


def test_matplotlib_keeps_its_settings(calibrated, tmp_path):
    subject, page = calibrated
    with matplotlib.rc_context({"font.size": 23.0, "axes.spines.top": True}):
        before = dict(matplotlib.rcParams)
        again = write_report(subject, tmp_path, facts=HOME)
        assert dict(matplotlib.rcParams) == before
        assert plot_weights(subject).axes[0].xaxis.label.get_size() == 11
    assert again.read_bytes() == page.read_bytes()  # nothing in it depends on the time, on chance or on the settings


def test_a_browser_shows_it(posterior, tmp_path):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium on PATH")
    page = write_report(posterior(1, 4, beta=None), tmp_path, title="A title", truth=np.zeros(4))
    flags = ["headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"]
    flags += ["disable-component-update", "disable-sync", "hide-scrollbars", f"user-data-dir={tmp_path / 'profile'}"]
    shot = tmp_path / "shot.png"
    command = [browser, *(f"--{flag}" for flag in flags), "--window-size=1000,1600", f"--screenshot={shot}"]
    result = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=60)
    assert shot.is_file(), result.stderr
    pixels = imread(shot)
    assert pixels.shape[:2] == (1600, 1000)
    # Text, tables and figures from top to bottom, and the three colours that carry the meaning.
    assert all(ink(band) > 0.004 for band in np.array_split(pixels, 8))
    for colour in ("#942192", "#5F5AA5", "#555555"):
        close = np.abs(pixels[..., :3] - matplotlib.colors.to_rgb(colour)).max(axis=-1) < 0.02
        assert close.sum() > 200, colour
