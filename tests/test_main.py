"""The program from its first moment."""

import subprocess
import sys

INTERRUPTED = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "hpcserve.cli.program":
            Finalized()

class Finalized:  # where an exception is shown and goes no further
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
runpy.run_module("hpcserve", run_name="__main__")
"""


def test_ctrl_c_while_it_loads_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_it_runs_as_a_module_as_well() -> None:
    done = subprocess.run([sys.executable, "-m", "hpcserve", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hpcserve, version ")
