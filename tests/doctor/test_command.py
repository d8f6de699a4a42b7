"""A command is run to its end, or ended with all that it started."""

import time
from pathlib import Path

from hpcserve.discovery import stat_of
from hpcserve.doctor import run_command


def is_gone(pid: int) -> bool:
    """Whether it is, or is within seconds: its pipes close a little before it is gone."""
    end_s = time.monotonic() + 10
    while stat_of(pid) is not None and time.monotonic() < end_s:
        time.sleep(0.05)
    return stat_of(pid) is None


def test_what_a_command_prints_and_why_it_fails() -> None:
    ran = run_command(("bash", "-c", "echo out; echo ' why ' >&2"), timeout_s=20)
    assert (ran.output, ran.trouble, ran.complaints) == ("out\n", "", "why")
    ran = run_command(("bash", "-c", "echo out; echo why >&2; exit 3"), timeout_s=20)
    assert (ran.output, ran.trouble, ran.missing, ran.late) == ("out\n", "why", False, False)
    assert run_command(("bash", "-c", "exit 3"), timeout_s=20).trouble == "exit code 3"


def test_a_command_that_is_not_there_is_told_from_one_that_may_not_be_run(tmp_path: Path) -> None:
    ran = run_command((str(tmp_path / "none"),), timeout_s=20)
    assert (ran.missing, ran.trouble) == (True, f"{tmp_path}/none: No such file or directory")
    (tmp_path / "closed").write_text("")
    ran = run_command((str(tmp_path / "closed"),), timeout_s=20)
    assert (ran.missing, ran.trouble) == (False, f"{tmp_path}/closed: Permission denied")


def test_a_command_that_is_late_has_its_grace_and_is_ended_with_what_it_started() -> None:
    polite = "trap 'echo ended; exit' TERM; sleep 60 & echo $!; wait"
    begun_s = time.monotonic()
    ran = run_command(("bash", "-c", polite), timeout_s=2, grace_s=20)
    assert time.monotonic() - begun_s < 10
    child, ended = ran.unfinished.split()
    assert (ran.output, ran.late, ended) == ("", True, "ended")
    assert is_gone(int(child))


def test_a_command_that_does_not_end_when_told_is_killed_with_what_it_started() -> None:
    stubborn = "trap '' TERM; sleep 60 & echo $!; echo busy >&2; wait"
    begun_s = time.monotonic()
    ran = run_command(("bash", "-c", stubborn), timeout_s=2, grace_s=0.2)
    assert time.monotonic() - begun_s < 20
    assert ran.trouble == "bash did not end in 2 s: busy"
    assert is_gone(int(ran.unfinished))
