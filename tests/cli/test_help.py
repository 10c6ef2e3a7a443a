"""What the command line says without running anything, and how little it needs for that."""

import importlib.metadata
import shlex
import subprocess
import sys

import pytest

import nsmbayes as nsm
from nsmbayes import cli
from nsmbayes.cli import arguments, main
from nsmbayes.experiments import catalogue, spec
from nsmbayes.methods import METHODS
from nsmbayes.posteriors import outliers


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"nsmbayes {nsm.__version__}\n"
    assert nsm.__version__ == importlib.metadata.version("nsmbayes")


@pytest.mark.parametrize(
    "command",
    [[], ["nope"], ["infer"], ["infer", "model"], ["demo", "--seed", "x"], ["reproduce", "gnk", "--preset", "best"]],
)
def test_misuse_shows_the_usage(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("usage: nsmbayes")
    assert "Traceback" not in said.err


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert all(
        f"\n    {name}" in text
        for name in ("demo", "simulate", "train", "infer", "diagnose", "certify", "explore", "reproduce", "bench")
    )
    assert "exit codes: 0 done" in text
    assert len(text.splitlines()) <= 40  # one screen


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_every_command_has_examples_that_parse(name, capsys):
    examples = arguments.COMMANDS[name].examples
    assert examples
    for example in examples:
        call = example.removeprefix('eval "$(').removesuffix(')"')
        assert arguments.parser().parse_args(shlex.split(call)[1:]).command == name
    with pytest.raises(SystemExit):
        main([name, "--help"])
    text = capsys.readouterr().out
    assert all(f"\n  {example}\n" in text for example in examples)


def test_every_command_that_finds_something_writes_json():
    options = {name: arguments.parser().parse_args(shlex.split(call)[1:]) for name, call in _CALLS.items()}
    assert {name for name, found in options.items() if not hasattr(found, "json")} == {"completion", "explore"}


_CALLS = {
    name: command.examples[0].removeprefix('eval "$(').removesuffix(')"')
    for name, command in arguments.COMMANDS.items()
}


def test_help_needs_nothing_large():
    code = """
import sys
from nsmbayes.cli import arguments, main
for command in ("", *arguments.COMMANDS):
    try:
        main([*command.split(), "--help"])
    except SystemExit as stopped:
        assert stopped.code == 0
print("large:", *sorted({"jax", "numpy", "scipy", "matplotlib"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "large:"


def test_the_names_in_the_help_are_those_of_the_registries():
    assert tuple(catalogue.EXPERIMENTS) == arguments.EXPERIMENTS
    assert sorted(METHODS) == sorted(arguments.METHODS)
    assert spec.PRESETS == arguments.PRESETS
    assert outliers.SHOWN == arguments.OUTLIERS
    for name in arguments.COMMANDS:
        assert callable(importlib.import_module(f"nsmbayes.cli.{name}").run)


def test_the_script_that_is_installed_is_this_one():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="nsmbayes")
    assert script.load() is cli.entry


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "nsmbayes", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("nsmbayes ")
