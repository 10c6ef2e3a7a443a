"""What is here, and what shells are told."""

import json
import subprocess

import pytest

import nsmbayes as nsm
from nsmbayes.cli import arguments, doctor, main


def test_the_doctor_tells_versions_devices_and_cache(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NSMBAYES_CACHE", str(tmp_path / "cache"))
    assert main(["doctor", "--json", str(tmp_path / "found.json")]) == 0
    said, found = capsys.readouterr().out, json.loads((tmp_path / "found.json").read_text())
    assert found["packages"]["nsmbayes"] == nsm.__version__
    assert {"jax", "numpy", "numpyro", "scipy"} <= set(found["packages"])
    assert all(found["packages"].values())
    assert found["devices"][0]["works"]
    assert found["cache"]["folder"] == str(tmp_path / "cache")
    assert found["cache"]["programs"] == 0
    for text in (f"nsmbayes {nsm.__version__}", f"jax {found['packages']['jax']}", "device: cpu", "All is well."):
        assert text in said


def test_what_is_missing_is_a_problem(capsys, monkeypatch):
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("optax", "sbi") else real(name))
    monkeypatch.setenv("NSMBAYES_CACHE", "off")
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "optax MISSING" in said
    assert "optax is not installed: pip install optax" in said
    assert "sbi: not installed (pip install nsmbayes[sbi]); for nsmbayes.from_sbi" in said
    assert "are not kept" in said
    assert "All is well" not in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [("nsmbayes cer", ["certify"]), ("nsmbayes infer --hea", ["--header"]), ("nsmbayes infer x", [])],
)
def test_bash_completes_commands_and_options(words, expected, capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; _nsmbayes; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split() == expected
    assert all(f"{name}) options=" in script for name in arguments.COMMANDS)


def test_zsh_is_told_to_read_what_bash_reads(capsys):
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload")
