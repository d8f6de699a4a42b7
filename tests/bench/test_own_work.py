"""What of a host's work is the job's own."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcserve.bench.host import cpu_times, own_ticks

BURN = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\n"


@pytest.mark.parametrize(("mark", "counted"), [("own", True), ("another", False)])
def test_the_work_of_a_jobs_sessions_is_its_own(tmp_path: Path, mark: str, counted: bool) -> None:
    """The one that works does not name the job, as an engine that has overwritten its environment; its session does."""
    before, cpu = own_ticks(tmp_path / "own"), cpu_times()
    leader = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}], env={{}}); input()"
    with subprocess.Popen(
        [sys.executable, "-c", leader],
        env=os.environ | {"HPCSERVE_JOB": str(tmp_path / mark)},
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 30
        burnt = 0.6 * os.sysconf("SC_CLK_TCK")
        while cpu_times().busy_since(cpu) < burnt or (counted and own_ticks(tmp_path / "own") - before < burnt):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        worked = own_ticks(tmp_path / "own") - before
        assert process.stdin is not None
        process.stdin.close()
    assert (worked >= burnt) is counted
