"""The paper's table of simulation budgets: formulas of its appendix, options of the methods, and counted runs."""

import json

import numpy as np
import pytest
from support.effort import little_effort

import nsmbayes as nsm
from nsmbayes.cli import main
from nsmbayes.experiments import DataSpec, Experiment, MethodSpec, catalogue
from nsmbayes.experiments.method_cache import MethodCache
from nsmbayes.experiments.paper import ALLOWANCES, GNK
from nsmbayes.methods import METHODS
from nsmbayes.methods.baselines.simulating import SimulatingMethod

pytestmark = pytest.mark.baselines

N = 100
# formula of the appendix with its values, and the total that it prints
TABLE = {
    ("gnk", "rsnle"): (2 * 500 * N, 100_000),
    ("gnk", "npe-rs"): (1000 * N, 100_000),
    ("gnk", "npl-mmd"): (500 * 20 * 10, 100_000),
    ("gnk", "ace"): (1000 * N, 100_000),
    ("gnk", "gbi-sr"): (200 * 7 + 3 * 20 * 200 * 7 + (500 + 500) * 15, 100_400),
    ("sir", "ace"): (500 * N, 50_000),
    ("sir", "gbi-sr"): (200 * 4 + 3 * 20 * 172 * 4 + (500 + 500) * 8, 50_080),
    ("radio", "ace"): (500 * N, 50_000),
}


@pytest.mark.parametrize("row", TABLE)
def test_the_table_of_the_appendix(row):
    task, name = row
    formula, total = TABLE[row]
    allowance, kind = ALLOWANCES[task][name], METHODS[name]
    assert formula == total == allowance.budget
    if issubclass(kind, SimulatingMethod):
        problem = nsm.tasks.get(task)
        method = kind(problem.prior, problem, budget=allowance.budget, **allowance.options)
        assert method.planned_simulations(N) == total
    else:
        assert allowance.sets * N == total


@pytest.mark.parametrize("kind", [kind for kind in METHODS.values() if issubclass(kind, SimulatingMethod)])
@pytest.mark.parametrize("budget", [100_000, 50_000])
def test_options_within_a_budget_use_most_of_it(kind, budget):
    task = nsm.tasks.get("gnk")
    planned = kind(task.prior, task, **kind.options_for_budget(budget, N)).planned_simulations(N)
    assert 0.98 * budget < planned <= budget


ALLOWED = {
    spec.label: (experiment.task, spec)
    for experiment in catalogue.EXPERIMENTS.values()
    for spec in experiment.methods
    if spec.m is not None and issubclass(METHODS[spec.method], SimulatingMethod)
}


@pytest.mark.parametrize("label", ALLOWED)
def test_what_an_experiment_allows_a_baseline_is_enough(label):
    name, spec = ALLOWED[label]
    task, kind = nsm.tasks.get(name), METHODS[spec.method]
    how = {"calibrate": spec.beta is None} if kind is nsm.GBISR else {}
    method = kind(task.prior, task, **spec.options)
    assert 0.98 * spec.m < method.planned_simulations(N, **how) <= spec.m


def test_every_baseline_has_its_row():
    names = {"rsnle", "npe-rs", "npl-mmd", "ace", "gbi-sr"}
    assert names <= GNK.keys() & METHODS.keys() & ALLOWANCES["gnk"].keys()
    assert {METHODS[name].amortised for name in names - {"ace"}} == {"no"}
    assert METHODS["ace"].amortised == "partially"
    assert METHODS["npe"].amortised == "fully"


def test_the_command_runs_baselines(tmp_path, monkeypatch):
    file = tmp_path / "rows.json"
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "gnk", "--methods", "npl-mmd", "--repeats", "1", "--observations", "20", "--quiet"]
    assert main([*command, "--simulations", "10000", "--json", str(file)], effort=little_effort()) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["simulations"] == 10_000


def test_ace_sees_the_observations_and_the_budget(monkeypatch):
    seen = []

    def train(method, seed, *, observed, progress):
        seen.append(observed)
        return method

    monkeypatch.setattr(nsm.ACE, "train", train)
    task = nsm.tasks.get("gnk")
    x = task.observe(20, seed=0).x
    cache = MethodCache(Experiment("one", "", "gnk", (MethodSpec("ace"),), m=1000), 0)
    method, _ = cache.trained(MethodSpec("ace"), DataSpec(n=20), x)
    assert seen == [x]
    assert method.simulations_used == method.budget == 1000


def test_a_run_over_its_budget_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "gnk", "--methods", "gbi-sr", "--repeats", "1", "--simulations", "9000", "--quiet"]
    assert main(command, effort=little_effort()) == 2
    assert "the budget is 9,000" in capsys.readouterr().err


def test_what_the_paper_does_not_run_is_refused():
    experiment = Experiment("one", "", "sir", (MethodSpec("npl-mmd"),), preset="paper")
    cache = MethodCache(experiment, 0)
    with pytest.raises(nsm.InputError, match="does not run npl-mmd on sir"):
        cache.trained(*experiment.methods, DataSpec(n=20), np.zeros((20, 3)))
