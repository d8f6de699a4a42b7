import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpcserve.discovery import start_ticks
from hpcserve.provision import Progress
from hpcserve.provision.progress import exclusive
from hpcserve.provision.running import run_program

KILLED_MAKER = """\
import sys
from pathlib import Path
from hpcserve.provision.progress import exclusive
from hpcserve.provision.running import run_program
child = "import os, time; print(os.getpid(), flush=True); time.sleep(3)"
with exclusive(Path(sys.argv[1]), report=print):
    run_program([sys.executable, "-c", child], on_line=lambda line: print(line, flush=True))
"""


def test_lines_arrive_while_the_program_runs_and_silence_is_noticed() -> None:
    script = "import sys, time\nprint('one', flush=True)\ntime.sleep(0.5)\nprint('two', file=sys.stderr)\nsys.exit(3)"
    events: list[str] = []
    finished = run_program(
        [sys.executable, "-c", script], on_line=events.append, on_pause=lambda: events.append("pause"), pause_s=0.1
    )
    assert finished.status == 3
    assert finished.last_lines == ("one", "two")
    assert events[0] == "one"
    assert "pause" in events
    assert events[-1] == "two"


def test_an_exception_out_of_a_callback_ends_the_program(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = (
        "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\nprint('up', flush=True)\ntime.sleep(60)"
    )

    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_program([sys.executable, "-c", script, str(pid_file)], on_line=interrupt)
    assert time.monotonic() - started_s < 15
    assert not Path("/proc", pid_file.read_text(encoding="utf-8")).exists()


def test_the_added_environment_does_not_hide_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "a b")
    script = "import os; print(os.environ['KEPT'], os.environ['ADDED'])"
    finished = run_program([sys.executable, "-c", script], environment={"ADDED": "$c"})
    assert finished.last_lines == ("a b $c",)


def test_a_second_maker_says_that_it_waits_and_then_goes_on(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "target"
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        def tell(progress: Progress) -> None:
            order.append(progress.text)
            waiting.set()

        with exclusive(target, report=tell):
            order.append("second")

    with exclusive(target, report=print):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first ends")
    thread.join(10)
    assert order == [f"another process is making {target}; waiting for it", "first ends", "second"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_said_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(_file: object, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    told: list[Progress] = []
    with exclusive(tmp_path / "model", report=told.append):
        pass
    [line] = map(str, told)
    assert line.startswith(f"{tmp_path} has no file locks ({os.strerror(number)}; Lustre has them with `-o flock`)")


def test_the_program_of_a_killed_maker_keeps_the_lock_until_it_ends(tmp_path: Path) -> None:
    target = tmp_path / "target"
    maker = subprocess.Popen(
        [sys.executable, "-c", KILLED_MAKER, str(target)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with maker:
        assert maker.stdout is not None
        child = int(maker.stdout.readline())
        maker.kill()
    heard: list[Progress] = []
    with exclusive(target, report=heard.append):
        # The kernel closes an ending program's files a moment before it is gone.
        end = time.monotonic() + 0.5
        while start_ticks(child) is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert start_ticks(child) is None
    assert len(heard) == 1
