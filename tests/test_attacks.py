"""A sample of the attacks in `attacks/`, which `python -m attacks all` runs in full."""

from attacks import models


def test_hostile_models_are_refused_or_whole():
    result = models.run(60, seed=7)
    assert result.failures == []
    assert result.outcomes["refused"] > 40
