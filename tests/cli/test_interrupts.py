"""Ctrl-C ends a command, whatever it does."""

import os
import signal
import subprocess
import sys
import time

import pytest

_BUSY = """
import hashlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from nsmbayes.cli.interrupts import prompt_interrupts
with prompt_interrupts():
    print("ready", flush=True)
    sys.stdout.write("what was printed")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes without a step of Python's own
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_a_program_that_python_cannot_interrupt():
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | {"PYTHONUNBUFFERED": ""}}
    with subprocess.Popen([sys.executable, "-c", _BUSY], text=True, **how) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        time.sleep(0.5)  # until it is busy
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(30) == 130
        finally:
            process.kill()
        assert process.stdout.read() == "what was printed"
        assert process.stderr.read() == "\nnsmbayes: interrupted\n"
