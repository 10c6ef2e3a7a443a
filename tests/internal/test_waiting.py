"""The line for people who wait."""

import time

import pytest

from nsmbayes._internal import waiting as module
from nsmbayes._internal.waiting import quiet, stage, waiting


@pytest.fixture
def impatient(monkeypatch):
    """Somebody looks, and does not wait two seconds."""
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    monkeypatch.setattr(module, "_EVERY", 0.02)
    monkeypatch.setattr(module, "_somebody_looks", lambda: True)


def test_what_takes_long_is_shown_with_its_stages(impatient, capsys):
    with waiting("posterior", progress=True):
        time.sleep(0.2)
        with waiting("another", progress=True):  # inside of the first
            stage("checking")
            time.sleep(0.3)
    said = capsys.readouterr().err
    assert "posterior [" in said
    assert "posterior: checking [" in said
    assert "another" not in said


@pytest.mark.parametrize(("progress", "seconds"), [(False, 0.2), (True, 0.0)])
def test_what_is_quick_or_silenced_is_not(impatient, capsys, progress, seconds):
    with waiting("posterior", progress=progress):
        stage("checking")
        time.sleep(seconds)
    assert capsys.readouterr().err == ""


def _fail_after(seconds):
    time.sleep(seconds)
    raise ZeroDivisionError


@pytest.mark.parametrize("silent", [True, False])
def test_all_of_it_can_be_silenced(impatient, capsys, silent):
    with quiet(silent), waiting("posterior", progress=True):
        time.sleep(0.2)
    assert ("posterior [" in capsys.readouterr().err) != silent


def test_nothing_is_shown_where_nobody_looks(impatient, monkeypatch, capsys):
    monkeypatch.setattr(module, "_somebody_looks", lambda: False)
    with waiting("posterior", progress=True):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_an_error_ends_the_line(impatient, capsys):
    with pytest.raises(ZeroDivisionError), waiting("posterior", progress=True):
        _fail_after(0.1)
    assert module._NOW.get() is None
    assert "posterior [" in capsys.readouterr().err
