"""The command line: what it writes is what the library computes, and what users can fix is one line on stderr."""

import contextlib
import csv
import io
import json
import os
import sys
import warnings

import numpy as np
import pytest
from support.csv_files import BAD, GOOD, csv_text
from support.effort import little_effort
from support.html import Page

import nsmbayes as nsm
from nsmbayes import load
from nsmbayes.cli import certify, entry, main
from nsmbayes.cli.inputs import read_csv

TASK = nsm.tasks.get("gnk")


@pytest.fixture
def no_report(monkeypatch):
    """`nsmbayes infer` without the report, whose figures take longer than the posterior."""
    monkeypatch.setattr("nsmbayes.cli.infer.write_report", lambda *_, **__: None)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder that `nsmbayes demo` writes, run twice, and what it says the second time on stdout and stderr."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    command = ["demo", "--simulations", "500", "--observations", "100", "--seed", "3", "--out", str(out)]
    command += ["--json", str(out / "demo.json")]
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("nsmbayes.cli.demo.write_report", lambda *_, **__: None)  # one report is enough
        warnings.simplefilter("always", UserWarning)
        assert main(command, effort=little_effort()) == 0
    words, complaints = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(words), contextlib.redirect_stderr(complaints):
        warnings.simplefilter("always", UserWarning)
        assert main([*command, "--quiet"], effort=little_effort()) == 0
    return out, words.getvalue(), complaints.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory, trained_gnk):
    """A model folder for `nsmbayes infer`."""
    return trained_gnk.save(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def posterior(tmp_path_factory, trained_gnk):
    """The folder of a posterior, which is no model."""
    saved = trained_gnk.build_posterior(TASK.observe(100, seed=8).x, beta=0.2)
    return saved.save(tmp_path_factory.mktemp("posterior") / "posterior")


@pytest.fixture
def data(tmp_path):
    """Contaminated observations, and the path of a CSV file to write them to."""
    return TASK.observe(100, seed=8), tmp_path / "data.csv"


def _read(out):
    """posterior.json, the header of draws.csv, and its numbers."""
    posterior = json.loads((out / "posterior.json").read_text())
    with (out / "draws.csv").open(newline="") as file:
        names, *rows = csv.reader(file)
    return posterior, names, np.array(rows, float)


def _visible_text(page):
    return " ".join(Page(page).text)


def test_demo_writes_a_report_and_models_to_go_on_with(demo):
    out, words, complaints = demo
    # There are outliers outside the range of the simulations.
    assert complaints
    assert all(line.startswith("nsmbayes: warning: 10 of 100 observations lie") for line in complaints.splitlines())
    assert "500 simulations of gnk" in words
    assert str(out / "report.html") in words
    expected = {f"{name}.{kind}" for name in ("weights", "marginals") for kind in ("png", "svg")} | {"report.html"}
    assert expected <= {path.name for path in out.iterdir()}
    observed = TASK.observe(100, seed=3)
    text = _visible_text(out / "report.html")
    for number in TASK.theta_true:
        assert f"{number:.3f}" in text
    rows = {row["method"]: row for row in json.loads((out / "demo.json").read_text())["rows"]}
    assert list(rows) == ["NSM-Bayes", "NSM-Bayes-amortised", "NSM-Bayes-conj", "NLE"]
    for name in ("nsm-bayes", "nsm-bayes-conj"):
        assert str(out / name) in words
        method = load(out / name)
        assert method.parameter_names == TASK.parameter_names
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            posterior = method.build_posterior(observed.x, seed=3)
        assert posterior.summary() in words
        assert rows[method.label]["mse"] == posterior.mse(TASK.theta_true)
        assert f"MSE {posterior.mse(TASK.theta_true):.2f}" in words
        assert f"MSE {posterior.mse(TASK.theta_true):.2f}" in text
    assert "10 of 100" in text  # outliers planted


def test_infer_writes_what_the_library_computes(model, data, tmp_path, capsys):
    observed, file = data
    file.write_text(csv_text(observed.x))
    out = tmp_path / "a" / "b"
    command = ["infer", str(model), str(file), "--seed", "5", "--draws", "321", "--out", str(out)]
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.err == ""

    posterior = load(model).build_posterior(observed.x, seed=5)
    assert said.out.startswith(posterior.summary())
    written, names, draws = _read(out)
    assert written["parameters"] == names == list(TASK.parameter_names)
    assert written["n"] == 100
    assert written["beta"] == posterior.beta
    assert np.array_equal(written["mean"], posterior.mean)
    assert np.array_equal(written["covariance"], posterior.covariance)
    assert np.array_equal(written["weights"], posterior.weights)
    assert draws.shape == (321, 4)
    assert np.allclose(draws, posterior.sample((321,), seed=5), rtol=1e-6)
    text = _visible_text(out / "report.html")
    assert "Posterior given data.csv" in text
    for number in (*posterior.mean, *posterior.std):
        assert f"{number:.3f}" in text


@pytest.mark.usefixtures("no_report")
def test_infer_distrusts_outliers_and_is_not_moved_by_them(model, data, tmp_path):
    observed, file = data
    results = []
    for distance in (5e3, 5e6):
        x = observed.clean.copy()
        x[observed.is_outlier] -= distance
        file.write_text(csv_text(x))
        out = tmp_path / f"{distance}"
        assert main(["infer", str(model), str(file), "--beta", "0.2", "--out", str(out)]) == 0
        results.append(_read(out)[0])
    for result in results:
        weights = np.array(result["weights"])
        assert weights[observed.is_outlier].max() < 0.1
        assert np.median(weights[~observed.is_outlier]) > 0.4
    assert np.allclose(results[0]["mean"], results[1]["mean"], atol=0.01)


@pytest.mark.parametrize("name", GOOD)
def test_infer_reads_csv_as_people_write_it(name, model, data, capsys):
    observed, file = data
    file.write_bytes(GOOD[name](observed.x))
    assert np.array_equal(read_csv(file), observed.x)
    assert main(["infer", str(model), str(file), "--beta", "0.2"]) == 0
    expected = load(model).build_posterior(observed.x, beta=0.2)
    assert capsys.readouterr().out == expected.summary() + "\n"


@pytest.mark.parametrize(
    ("text", "options", "values", "names"),
    [
        ("0\n1.5\n", {"header": "yes"}, [[1.5]], None),
        ("0\n1.5\n", {"header": "no"}, [[0.0], [1.5]], None),
        ("0\n", {}, [[0.0]], None),
        ("a,b\n0,1\n", {}, [[0.0, 1.0]], ("a", "b")),
        ("NA,x\n0,1\n", {}, [[0.0, 1.0]], ("NA", "x")),
        ("1,2\n3,4\n", {"width": 2}, [[1.0, 2.0], [3.0, 4.0]], None),
        ("nan,x\n0,1\n", {"header": "yes"}, [[0.0, 1.0]], ("nan", "x")),
    ],
)
def test_headers(text, options, values, names, tmp_path):
    (tmp_path / "data.csv").write_text(text)
    table = read_csv(tmp_path / "data.csv", **options)
    assert table.values.tolist() == values
    assert table.columns == names


@pytest.mark.parametrize("start", [0, 1], ids=["pandas", "R"])
@pytest.mark.parametrize(("head", "names"), [('"",a,b', ("a", "b")), (",0,1", None), ("Unnamed: 0,a,b", ("a", "b"))])
def test_an_index_column_is_left_out_with_a_note(head, names, start, tmp_path):
    rows = "".join(f"{start + i},{i}.5,2.5\n" for i in range(3))
    (tmp_path / "data.csv").write_text(f"{head}\n{rows}")
    with pytest.warns(UserWarning, match="left out as an index"):
        table = read_csv(tmp_path / "data.csv")
    assert table.values.tolist() == [[0.5, 2.5], [1.5, 2.5], [2.5, 2.5]]
    assert table.columns == names


def test_columns_of_a_file_are_brought_into_order(tmp_path, random_method, capsys):
    model = random_method(2, 2, scatter="mad", x_names=("dose", "age")).save(tmp_path / "model")
    x, file = np.random.default_rng(0).standard_normal((30, 2)), tmp_path / "data.csv"
    said = []
    for values, header in ((x, "dose,age\n"), (x[:, ::-1], "age,dose\n")):
        file.write_text(csv_text(values, header=header))
        assert main(["infer", str(model), str(file), "--beta", "0.3"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    file.write_text(csv_text(x, header="dose,sex\n"))
    assert main(["infer", str(model), str(file), "--beta", "0.3"]) == 2
    assert "has the columns dose, sex" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error(model, data, monkeypatch, capsys):
    observed, file = data
    file.write_text(csv_text(observed.x))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["infer", str(model), str(file), "--beta", "0.2"]) == 141
    assert capsys.readouterr().err == ""


def test_infer_without_out_writes_nothing(model, data, tmp_path, capsys):
    observed, file = data
    file.write_text(csv_text(observed.x))
    assert main(["infer", str(model), str(file), "--beta", "0.2"]) == 0
    assert "100 observations" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [file]


def test_certify_says_what_is_proved_and_lists_the_outliers(model, data, tmp_path, capsys):
    observed, file = data
    file.write_text(csv_text(observed.x))
    out = tmp_path / "certificate.json"
    command = ["certify", str(model), str(file), "--beta", "0.2", "--outliers", "12", "--json", str(out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    posterior = load(model).build_posterior(observed.x, beta=0.2)
    assert said.startswith(posterior.certificate.explain())
    written = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert written["certificate"]["robust"]
    assert written["certificate"]["influence_bound"] == posterior.certificate.influence_bound
    assert len(written["outliers"]) == 12
    listed = [row["row"] for row in written["outliers"]]
    assert set(np.flatnonzero(observed.is_outlier)) <= set(listed)
    np.testing.assert_allclose([row["influence"] for row in written["outliers"]], posterior.influence()[listed])
    for row in written["outliers"]:
        assert row["weight"] == posterior.weights[row["row"]]
        assert row["value"] == observed.x[row["row"]].tolist()
        assert f"{row['value'][0]:.4g}" in said


def test_diagnose_writes_a_page_and_numbers(model, data, tmp_path, capsys):
    observed, file = data
    file.write_text(csv_text(observed.x))
    out, numbers = tmp_path / "diagnosis", tmp_path / "numbers.json"
    command = ["diagnose", str(model), str(file), "--beta", "0.2", "--out", str(out), "--json", str(numbers)]
    assert main([*command, "--simulator", "gnk", "--calibration", "20"]) == 0
    said = capsys.readouterr().out
    written = json.loads(numbers.read_text(), parse_constant=pytest.fail)
    assert [each["level"] for each in written["calibration"]["coverage"]] == [0.5, 0.8, 0.95]
    assert f"95% regions contain the truth in {written['calibration']['coverage'][2]['rate']:.0%}" in " ".join(
        said.split()
    )
    assert {"prior", "learning rate"} <= {each["choice"] for each in written["sensitivity"]}
    assert {"calibration.png", "sensitivity.png"} <= {path.name for path in out.iterdir()}
    assert written["check"] is None  # the model has no density, and simulations are not saved
    assert written["verdict"]["source"] == "simulator"
    assert written["verdict"]["verdict"].capitalize()[:10] in said
    assert "Outliers, or a wrong simulator?" in (out / "diagnosis.html").read_text()
    assert main([*command, "--simulator", "nothing"]) == 2


def test_certify_exits_with_one_where_nothing_is_proved(tmp_path, data, random_method, capsys):
    observed, file = data
    file.write_text(csv_text(observed.x))
    fragile = random_method(1, 2, scatter="sample").save(tmp_path / "fragile")
    assert main(["certify", str(fragile), str(file), "--beta", "0.2"]) == 1
    assert capsys.readouterr().out.startswith("NOT certified robust: the 'sample' location and scatter")


@pytest.mark.usefixtures("no_report")
def test_names_with_commas_stay_one_column(tmp_path, random_method):
    names = ("a, b", 'c "d"', "<e>")
    model = random_method(1, 3, parameter_names=names).save(tmp_path / "model")
    file = tmp_path / "data.csv"
    file.write_text(csv_text(np.random.default_rng(0).standard_normal((100, 1))))
    assert main(["infer", str(model), str(file), "--beta", "1", "--draws", "7", "--out", str(tmp_path)]) == 0
    written, header, draws = _read(tmp_path)
    assert tuple(written["parameters"]) == tuple(header) == names
    assert draws.shape == (7, 3)


@pytest.mark.usefixtures("no_report")
def test_names_are_shown_and_obeyed_by_nobody(tmp_path, random_method, capsys):
    """Neither by a terminal nor by a spreadsheet."""
    names = ("\x1b[2Ja\u202e", "=HYPERLINK(1)", "-b")
    model = random_method(1, 3, parameter_names=names).save(tmp_path / "model")
    file = tmp_path / "data.csv"
    file.write_text(csv_text(np.random.default_rng(0).standard_normal((100, 1))))
    assert main(["infer", str(model), str(file), "--beta", "1", "--draws", "7", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "\\x1b[2Ja\\u202e" in said
    assert said.replace("\n", "").isprintable()
    written, header, _ = _read(tmp_path)
    assert tuple(written["parameters"]) == names
    assert header == ["\\x1b[2Ja\\u202e", "'=HYPERLINK(1)", "'-b"]
    assert main(["infer", "no\x1b[2Jmodel", str(file)]) == 2
    assert "no\\x1b[2Jmodel" in capsys.readouterr().err


def _expect_one_line(capsys, complaint):
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("nsmbayes: ")
    assert said.err.count("\n") == 1
    assert complaint in said.err


@pytest.mark.parametrize("name", BAD)
def test_bad_csv_is_one_line_on_stderr(name, model, data, tmp_path, capsys):
    content, complaint = BAD[name]
    _, file = data
    file.write_bytes(content)
    assert main(["infer", str(model), str(file), "--beta", "0.2", "--out", str(tmp_path / "out")]) == 2
    _expect_one_line(capsys, complaint)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["infer", "MODEL", "no-such.csv"], "`data`"),
        (["infer", "MODEL", "FOLDER"], "`data`"),
        (["infer", "no-such-model", "DATA"], "`path` no-such-model is not a model folder"),
        (["infer", "DATA", "DATA"], "is not a model folder"),
        (["infer", "POSTERIOR", "DATA"], "holds a posterior"),
        (["infer", "MODEL", "DATA", "--draws", "0"], "`draws`"),
        (["infer", "MODEL", "DATA", "--draws", "-3"], "`draws`"),
        (["infer", "MODEL", "DATA", "--beta", "0"], "`beta`"),
        (["infer", "MODEL", "DATA", "--beta", "nan"], "`beta`"),
        (["infer", "MODEL", "DATA", "--seed", "-1"], "`seed`"),
        (["demo", "--task", "nope"], "no task 'nope'"),
        (["demo", "--simulations", "0"], "`m`"),
        (["demo", "--observations", "0"], "`n`"),
        (["demo", "--seed", "-1"], "`seed`"),
        (["demo", "--out", "DATA"], "File exists"),
        (["reproduce", "nope"], "no experiment 'nope'"),
        (["reproduce", "gnk", "--methods", "nope"], "`methods`"),
        (["reproduce", "gnk", "--methods", ""], "`methods`"),
        (["reproduce", "gnk", "--repeats", "0"], "`repeats`"),
        (["reproduce", "gnk", "--seed", "-1"], "`seed`"),
        (["reproduce", "gnk", "--simulations", "-5"], "`m`"),
        (["reproduce", "gnk", "--observations", "0"], "`n`"),
        (["reproduce", "gnk", "--methods", "nle,nle"], "`methods`"),
        (["reproduce", "gnk", "--contamination", "nope"], "`contamination`"),
        (["reproduce", "gnk", "--workers", "0"], "`workers`"),
        (["reproduce", "gnk", "--json", "FOLDER"], "`json` must be a file"),
        (["reproduce", "gnk", "--quiet", "--dask", "nowhere"], "`dask`"),
    ],
)
def test_bad_options_are_one_line_on_stderr(options, complaint, model, posterior, data, tmp_path, monkeypatch, capsys):
    observed, file = data
    file.write_text(csv_text(observed.x))
    monkeypatch.chdir(tmp_path)
    places = {"MODEL": model, "POSTERIOR": posterior, "DATA": file, "FOLDER": tmp_path}
    command = [str(places.get(option, option)) for option in options]
    if options[0] == "infer":
        command += ["--out", "out"]
    assert main(command) == 2
    _expect_one_line(capsys, complaint)
    assert [path for path in tmp_path.iterdir() if path.name != "demo"] == [file]
    assert not list(tmp_path.glob("demo/*"))


def test_an_unexpected_failure_is_not_an_answer(monkeypatch, capsys):
    """1 is what `certify` says of a posterior that is not robust."""
    monkeypatch.setattr(certify, "run", lambda options: 1 // 0)
    monkeypatch.setattr("sys.argv", ["nsmbayes", "certify", "model", "data.csv"])
    with pytest.raises(SystemExit) as ended:
        entry()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert said.endswith("please report it with the lines above\n")


def test_interruption_is_one_line(tmp_path, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    command = ["reproduce", "gnk", "--workers", "1", "--out", str(tmp_path), "--quiet"]
    assert main(command, effort=little_effort(oracle=interrupt)) == 130
    assert capsys.readouterr().err == "nsmbayes: interrupted\n"
