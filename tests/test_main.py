"""The program from its first moment to its last."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, runpy, signal, sys

def interrupt(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)

{before}
sys.argv[1:] = ["completion", "bash"]
runpy.run_module("hpcserve", run_name="__main__")
"""

WHILE_IT_LOADS = """
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "hpcserve.cli.program":
            {interrupt}

class Finalized:  # where an exception is shown and goes no further
    def __del__(self):
        interrupt()

sys.meta_path.insert(0, Interrupts())
"""

RUNNING = "import hpcserve.cli; loaded = sys.modules['hpcserve.cli.program']; "

INTERRUPTED = {
    "while it loads": WHILE_IT_LOADS.format(interrupt="interrupt()"),
    "while it loads, in a callback": WHILE_IT_LOADS.format(interrupt="Finalized()"),
    "before its command line is read": RUNNING + "loaded.run = interrupt",
    "while it leaves": "atexit.register(interrupt)",
}


def ended(before: str) -> tuple[int, str, str]:
    """Exit code, output and error output of `hpcserve completion bash` after that."""
    code = PROGRAM.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("when", INTERRUPTED)
def test_ctrl_c_is_quiet_at_any_moment(when: str) -> None:
    code, out, err = ended(INTERRUPTED[when])
    assert (code, err) == (130, "")
    assert bool(out) is (when == "while it leaves")


def test_ctrl_c_in_a_command_ends_its_line_and_says_no_more() -> None:
    assert ended(RUNNING + "loaded.program.callback = interrupt") == (130, "", "\n")


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    """As under nohup, or in the background of a script."""
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code, out, err = ended(ignored + INTERRUPTED["while it loads"] + INTERRUPTED["while it leaves"])
    assert (code, bool(out), err) == (0, True, "")


def test_it_runs_as_a_module_as_well() -> None:
    done = subprocess.run([sys.executable, "-m", "hpcserve", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hpcserve, version ")
