"""Text of others is shown as it is, written out where a terminal would obey it, and cut where it is long."""

import pytest

from nsmbayes._internal.text import LONGEST_NAME, cell, escape, listed, shorten


@pytest.mark.parametrize("text", ["alpha", "µ, σ²", "温度", "a b", "$\\theta$"])
def test_plain_text_stays(text):
    assert escape(text) == shorten(text) == cell(text) == text


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202etxt", "\ud800", "\x9b1m", "a\u2028b", "\x00"])
def test_control_characters_are_written_out(text):
    assert escape(text).isprintable()
    escape(text).encode()
    assert escape("a\nb", keep="\n") == "a\nb"


@pytest.mark.parametrize("name", ["a" * 10**6, "\x1b" * 10**6, "é" * 10**6])
def test_a_megabyte_is_cut(name):
    assert len(shorten(name)) == LONGEST_NAME
    assert len(listed([name] * 1000)) < 1000


def test_formulas_are_quoted():
    assert [cell(name) for name in ("=1", "+1", "-1", "@a", "a=1")] == ["'=1", "'+1", "'-1", "'@a", "a=1"]
