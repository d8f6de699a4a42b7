"""What Slurm prints of idle nodes and of estimated starts."""

import pytest

from hpcserve.scheduler.openings import parse_idle, parse_jobless, parse_start

SINFO = """\
node01 idle
node02 alloc
node03 idle*
node04 idle~
node05 mix
node06 drain
node07 idle-
node08 idle
node08 idle
node09 drng
node10 down*
node11 resv
node12 comp
"""


def test_only_plainly_idle_nodes_are_idle() -> None:
    assert parse_idle(SINFO) == {"node01", "node08"}
    assert parse_idle("") == frozenset()


def test_broken_and_sleeping_nodes_hold_no_job_and_one_that_drains_still_does() -> None:
    assert parse_jobless(SINFO) == {f"node{number:02d}" for number in (1, 3, 4, 6, 7, 8, 10)}


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (
            "sbatch: Job 12 to start at 2026-05-31T12:00:00 using 2 processors on nodes node[01-02] in partition main",
            "2026-05-31T12:00:00",
        ),
        ("allocation failure: Requested node configuration is not available", None),
        ("", None),
    ],
)
def test_the_estimate_is_read_where_there_is_one(text: str, start: str | None) -> None:
    assert parse_start(text) == start
