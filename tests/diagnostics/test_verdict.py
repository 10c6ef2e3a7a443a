"""The verdict on problems whose posterior is exact and quick to draw from: nothing is trained."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.diagnostics import Outcome, judge, verdict
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import PlateauIMQ, Weighting
from nsmbayes.weights.excess import Factor

N = 100


class Normal:
    """Independent normal columns; theta = (means, log standard deviations)."""

    def draw(self, theta, each, rng):
        mean, log_sd = np.split(theta[:, None], 2, axis=2)
        return mean + np.exp(log_sd) * rng.standard_normal((len(theta), each, mean.shape[2]))


@dataclass
class Fitted:
    """What the verdict needs of a posterior; draws are exact for the rows that count."""

    x: Any
    weighted: bool = True
    density: Any = None
    x_names: Any = None
    label: str = "test"
    factor: Any = None

    def __post_init__(self):
        self.density = Normal()
        self.noisy_x = self.x
        self.weighting = None
        if self.weighted:
            weight = PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=12.0, columns=1).for_columns(self.x.shape[1])
            self.weighting = Weighting(weight, fit_location_scatter(self.x))
        self.weights = np.ones(self.n) if self.weighting is None else self.weighting.at(self.x)

    @property
    def n(self):
        return len(self.x)

    def factor_by_number(self):
        return self.factor

    def sample(self, shape, seed=0):
        rng, bulk = np.random.default_rng(seed), self.x[self.weights > 0.5]
        k, mean, sd = len(bulk), bulk.mean(axis=0), bulk.std(axis=0, ddof=1)
        spread = sd * np.sqrt((k - 1) / rng.chisquare(k - 1, (*shape, len(mean))))
        place = mean + spread / np.sqrt(k) * rng.standard_normal((*shape, len(mean)))
        return np.concatenate([place, np.log(spread)], axis=-1)


def _clean(seed, d=1):
    return 3.0 + 2.0 * np.random.default_rng(seed).standard_normal((N, d))


def _outcomes(sets, **options):
    return [judge(Fitted(x, **options), seed=7).outcome for x in sets]


def test_clean_data_are_consistent():
    """33 data sets at a level of 0.03: five or more alarms have a probability of 0.4 %.

    Were p-values too large, as without the projection, nothing would be found.
    """
    found = [judge(Fitted(x), seed=7) for x in [*map(_clean, range(30)), *(_clean(seed, 2) for seed in range(3))]]
    outcomes, p = [each.outcome for each in found], [each.p_value for each in found]
    assert outcomes.count(Outcome.WRONG) < 5
    assert outcomes.count(Outcome.CONSISTENT) > 25
    assert 0.25 < np.median(p) < 0.8


def test_outliers_are_no_wrong_simulator():
    outcomes = []
    for seed in range(10):
        x = _clean(seed)
        x[:10] += 60 + np.arange(10)[:, None]
        found = judge(Fitted(x), seed=7)
        outcomes.append(found.outcome)
        assert set(range(10)) <= set(found.rows.tolist())
    assert outcomes.count(Outcome.CONSISTENT_BUT) >= 8


def _skewed(seed):
    return 3.0 + 2.0 * np.random.default_rng(seed).exponential(size=(N, 1))


def _correlated(seed):
    """Every column is normal: only together they are not what independent columns would be."""
    z = np.random.default_rng(seed).standard_normal((N, 2))
    return np.column_stack([z[:, 0], 0.7 * z[:, 0] + 0.714 * z[:, 1]])


@pytest.mark.parametrize(("other", "off"), [(_skewed, {"x"}), (_correlated, {"column 0 and column 1"})])
def test_a_wrong_simulator_is_called(other, off):
    """10 of 10 in trials."""
    found = [judge(Fitted(other(seed)), seed=7) for seed in range(10)]
    assert sum(each.outcome is Outcome.WRONG for each in found) >= 8
    assert sum(set(each.off) == off for each in found) >= 8


def test_without_the_projection_nothing_would_be_found(monkeypatch):
    """The planted bug: parameters that were fitted to the data hide what is wrong."""
    monkeypatch.setattr(verdict, "_without_parameters", lambda left, null, theta: (left, null))
    assert _outcomes([_skewed(seed) for seed in range(10)]).count(Outcome.WRONG) <= 5


def test_too_many_distrusted_rows_are_no_outliers():
    x = _clean(0)
    x[:38] = 200 + 0.1 * np.random.default_rng(1).standard_normal((38, 1))
    found = judge(Fitted(x), seed=7)
    assert found.outcome is Outcome.WRONG
    assert "so many are not outliers" in found.explain()
    everything = Fitted(x)
    everything.weights = np.full(N, 0.01)
    assert "no bulk" in judge(everything).explain()


def test_rows_that_are_too_many_are_named(monkeypatch):
    """Low weights are few enough for the tail of a model, but some rows have the same place."""
    found = {"p_value": 0.5, "low": np.full(9, 0.2), "names": (), "view_p_values": np.zeros(0), "describe": lambda: "."}
    monkeypatch.setattr(verdict, "_compared", lambda *_: SimpleNamespace(**found))
    fitted, values = Fitted(_clean(1)), np.ones(N)
    values[:4] = 0.05
    fitted.weights = np.where(np.arange(N) < 12, 0.05, 1.0)
    assert judge(fitted).outcome is Outcome.CONSISTENT
    fitted.factor = Factor(values, values, values, np.zeros(N, int), np.ones(N), np.ones(N))
    assert judge(fitted).verdict == "consistent but for 4 rows"
    assert judge(fitted).rows.tolist() == [0, 1, 2, 3]
    fitted.weights[:30] = 0.05
    assert judge(fitted).verdict == "consistent but for 30 rows"


def test_few_rows_are_not_judged():
    found = judge(Fitted(_clean(0)[:12]))
    assert found.outcome is Outcome.UNKNOWN
    assert found.as_json()["p_value"] is None
    assert "too few" in found.explain()


def test_all_rows_are_the_bulk_of_a_method_without_weights():
    x = _clean(0)
    assert judge(Fitted(x, weighted=False), seed=7).outcome is Outcome.CONSISTENT
    x[:10] += 60
    assert judge(Fitted(x, weighted=False), seed=7).outcome is Outcome.WRONG


def test_a_simulator_of_ones_own():
    simulator = nsm.NumpySimulator(lambda rng, theta: theta[:1] + np.exp(theta[1:]) * rng.standard_normal(1))
    found = judge(Fitted(_clean(0)[:40]), simulator, seed=7)
    assert found.source == "simulator"
    assert found.outcome is Outcome.CONSISTENT
    wide = nsm.NumpySimulator(lambda rng, theta: rng.standard_normal(2))
    with pytest.raises(nsm.InputError, match="makes 2 columns"):
        judge(Fitted(_clean(0)), wide)


def test_the_same_seed_gives_the_same_verdict():
    one, two = (judge(Fitted(_skewed(3)), seed=7) for _ in range(2))
    assert one.as_json() == two.as_json()
    assert "below" in one.reason
    assert str(one) == one.explain()
