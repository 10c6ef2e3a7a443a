"""The figures and the one-page report."""

import base64
import re
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from scipy import stats

import nsmbayes as nsm
from nsmbayes.report import (
    plot_calibration,
    plot_delay_profile,
    plot_influence,
    plot_marginals,
    plot_trajectories,
    plot_weights,
    write_report,
)
from nsmbayes.robustness import line as influence_line
from nsmbayes.robustness import pif_delta

FAST = nsm.RootCalibration(bootstraps=20, grid=9)
HOSTILE = '<b>&"</b><script>alert(1)</script>'


@pytest.fixture
def posterior(random_method):
    """Posteriors of any size. The first tenth of the observations are outliers."""

    def make(d_x, d_theta, *, n=50, far=30.0, beta=0.5, seed=0, **options):
        x = np.random.default_rng(seed).standard_normal((n, d_x))
        x[: n // 10] += far
        scatter = "mcd" if d_x == 1 else "mad"  # MCD takes long to compile in more dimensions
        method = random_method(d_x, d_theta, **({"scatter": scatter, "calibration": FAST} | options))
        return method.build_posterior(x, beta=beta)

    return make


class Page(HTMLParser):
    """The tags, the attributes, the ids and the text of a page, and its tables row by row."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.text, self.rows = [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_data(self, data):
        self.text.append(data)
        if self.rows and self.rows[-1] and self.tags[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def row(self, first):
        (found,) = [row for row in self.rows if row and row[0] == first]
        return found


def _ink(pixels):
    """The share of pixels that are not white."""
    return float((pixels[..., :3].min(axis=-1) < 0.97).mean())


def _labels(fig: Figure):
    return [label for axis in fig.axes for label in axis.get_legend_handles_labels()[1]]


@pytest.mark.parametrize(("d_x", "d_theta"), [(1, 1), (1, 4), (3, 6)])
def test_figures_and_page_for_every_size(d_x, d_theta, posterior, tmp_path):
    subject = posterior(d_x, d_theta)
    page = write_report(subject, tmp_path / "new" / "folder", title="A title")
    assert page == tmp_path / "new" / "folder" / "report.html"
    assert {path.name for path in page.parent.iterdir()} == {  # no calibration, so no figure of it
        "report.html", "weights.png", "weights.svg", "marginals.png", "marginals.svg",
        *(("pairs.png", "pairs.svg") if d_theta > 1 else ()),
    }  # fmt: skip
    names = ("weights", "marginals", "pairs") if d_theta > 1 else ("weights", "marginals")
    for name in names:
        assert 0.01 < _ink(imread(page.parent / f"{name}.png")) < 0.5
        assert ElementTree.parse(page.parent / f"{name}.svg").getroot().tag.endswith("svg")
    parsed = Page(page)
    assert parsed.tags.count("svg") == parsed.tags.count("figure") == len(names)
    assert "A title" in parsed.text
    assert f"50 observations, {d_theta} parameter{'s' if d_theta > 1 else ''}, β = 0.5" in "".join(parsed.text)
    assert "5 of 50 observations stand so far" in "".join(parsed.text)


def test_the_page_holds_the_numbers(posterior, tmp_path):
    subject, clean = posterior(1, 2, parameter_names=("a", "b")), posterior(1, 2, far=0.0)
    truth = np.array([0.1234, -5.4321])
    facts = {"simulations": "1,234", "a < b": "c & d"}
    page = Page(write_report(subject, tmp_path, truth=truth, comparisons={"clean": clean}, facts=facts))
    for j, name in enumerate("ab"):
        mean, std, prior = subject.mean[j], subject.stds[j], subject.prior
        reach = stats.norm.ppf(0.975) * std
        numbers = [mean, std, mean - reach, mean + reach, prior.mean[j], prior.stds[j], truth[j]]
        assert page.row(name) == [name, *(f"{number:.3f}" for number in numbers)]
    order = np.argsort(subject.weights)
    influence = subject.influence()
    for i in order[:15]:
        value, weight = subject.x[i, 0], subject.weights[i]
        assert page.row(str(i)) == [str(i), f"{value:.4g}", f"{weight:.2g}", f"{influence[i]:.2g}"]
    assert str(order[15]) not in [row[0] for row in page.rows if row]
    assert [page.row(key)[1] for key in facts] == list(facts.values())


def test_the_page_says_what_is_guaranteed(posterior, tmp_path):
    robust, fragile = posterior(1, 2), posterior(1, 2, scatter="sample")
    for shown, folder in ((robust, "robust"), (fragile, "fragile")):
        page = Page(write_report(shown, tmp_path / folder))
        assert shown.certificate.verdict in page.text
        for name, check in shown.certificate.checks.items():
            assert [name, {True: "holds", False: "fails", None: "not needed"}[check.holds], check.why] in page.rows
        for note in shown.certificate.notes:
            assert note in page.text
    assert ("p", "class", "box warning") in page.attributes


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


def test_nothing_is_distrusted_where_there_is_no_outlier(random_method, tmp_path):
    x = np.linspace(-1.0, 1.0, 50)[:, None]
    page = Page(write_report(random_method(1, 2).build_posterior(x, beta=1.0), tmp_path))
    assert "No observation stands far from the bulk" in "".join(page.text)


def test_the_page_warns_of_chains_that_have_not_converged(posterior, tmp_path, monkeypatch):
    first, second = posterior(1, 2), posterior(1, 2)
    page = Page(write_report(first, tmp_path, comparisons={"a <b> c": second}))
    assert "converged" not in "".join(page.text)
    monkeypatch.setattr(type(second), "converged", property(lambda self: self is first))
    page = Page(write_report(first, tmp_path, comparisons={"a <b> c": second}))
    assert "".join(page.text).count("have not converged") == 1
    assert "The chains of the a <b> c posterior have not converged" in "".join(page.text)


def test_the_page_is_self_contained(posterior, tmp_path):
    """No script, no image, no style sheet: all addresses are names of namespaces or point into the page itself."""
    subject = posterior(1, 2, beta=None)
    path = write_report(subject, tmp_path, facts={"home": "see https://example.org for more"})
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
    assert (tmp_path / "calibration.png").is_file()
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
    assert [row[0] for row in page.rows if row and row[0] in names] == [*names, HOSTILE]
    assert page.row("$a^$")[1] == f"{posterior(1, 6).mean[1]:.3f}"
    assert "".join(page.text).count(HOSTILE) == 5  # title, heading, parameter, and both cells of the fact
    for figure in ("weights", "marginals"):
        ElementTree.parse(tmp_path / f"{figure}.svg")


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


def test_many_observations_make_no_giant_page(posterior, tmp_path):
    small, large = (write_report(posterior(1, 1, n=n), tmp_path / str(n)).stat().st_size for n in (50, 5000))
    assert large < 2 * small


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
            assert density.max() == pytest.approx(1 / np.sqrt(2 * np.pi) / distribution.stds[j], rel=1e-3)
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
    settings = nsm.StochasticCalibration(bootstraps=10, steps=4)
    subject = posterior(1, 2, beta=None, calibration=settings)
    left, right = plot_calibration(subject.calibration).axes
    assert np.array_equal(left.lines[0].get_ydata(), subject.calibration.betas)
    assert set(left.lines[1].get_ydata()) == {subject.beta}
    assert np.array_equal(right.lines[0].get_ydata(), subject.calibration.coverages)


def test_matplotlib_keeps_its_settings(posterior, tmp_path):
    subject = posterior(1, 2, beta=None)
    with matplotlib.rc_context({"font.size": 23.0, "axes.spines.top": True}):
        before = dict(matplotlib.rcParams)
        pages = [write_report(subject, tmp_path / name).read_bytes() for name in ("one", "two")]
        assert dict(matplotlib.rcParams) == before
        assert plot_weights(subject).axes[0].xaxis.label.get_size() == 11
    assert pages[0] == pages[1]  # nothing in it depends on the time or on chance


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
    assert all(_ink(band) > 0.004 for band in np.array_split(pixels, 8))
    for colour in ("#942192", "#5F5AA5", "#555555"):
        close = np.abs(pixels[..., :3] - matplotlib.colors.to_rgb(colour)).max(axis=-1) < 0.02
        assert close.sum() > 200, colour


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
