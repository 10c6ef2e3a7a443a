"""Options stand on the class that a user calls."""

import inspect

import pytest

import nsmbayes as nsm


@pytest.mark.parametrize("method", [nsm.NLE, nsm.NSMBayes, nsm.NSMBayesAmortised, nsm.NSMBayesConj])
def test_every_option_is_in_the_signature_and_described(method):
    parameters = inspect.signature(method).parameters
    assert {"grid_steps", "parameter_names", "x_names", "scaling"} <= set(parameters)
    assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for name in parameters:
        assert f"\n    {name}: " in inspect.cleandoc(method.__doc__), name


def test_an_option_that_is_not_there_is_refused():
    prior = nsm.tasks.get("gnk").prior
    with pytest.raises(TypeError, match="colour"):
        nsm.NSMBayesAmortised(prior, colour="red")


def test_what_a_class_says_itself_comes_first():
    assert "By default it is full up to two" in nsm.NSMBayesAmortised.__doc__  # of NSMBayes, not of NLE
    assert "options:" not in nsm.NSMBayesAmortised.__doc__
