"""Nodes that gave no report: only what is known to be broken is called a failure."""

import pytest

from hpcserve.doctor.finding import Severity
from hpcserve.doctor.silence import Asked, unheard

REFUSED = "srun: error: Unable to allocate resources: "


def _told(asked: Asked, *heard: str) -> list[tuple[Severity, tuple[str, ...], str]]:
    return [(one.severity, one.nodes, one.what) for one in unheard(asked, heard, wait_s=30)]


def test_who_gave_a_report_is_not_spoken_of() -> None:
    assert _told(Asked(nodes=("n1", "n2"), said=("srun: error: n3",)), "n1", "n2", "n9") == []


@pytest.mark.parametrize(
    "reason", ["Requested nodes are busy", "Immediate execution impossible, insufficient priority"]
)
def test_busy_nodes_are_busy(reason: str) -> None:
    asked = Asked(nodes=("n1",), said=(REFUSED + reason, "srun: job 7 has been cancelled"))
    assert _told(asked) == [(Severity.WARNING, ("n1",), "not free within 30 s")]


def test_a_refusal_that_time_does_not_cure_is_told_in_slurms_words() -> None:
    asked = Asked(nodes=("n1",), said=(REFUSED + "Invalid account or account/partition combination specified",))
    ((severity, _, what),) = _told(asked)
    assert severity == Severity.WARNING
    assert what == "Slurm gave no job there: Invalid account or account/partition combination specified"


def test_slow_nodes_are_slow_and_only_those_that_did_not_begin_may_lack_hpcserve() -> None:
    asked = Asked(nodes=("n1", "n2", "n3"), said=("Loading python/3.11",), late_s=60.0, begun=frozenset({"n1", "n2"}))
    assert _told(asked, "n1") == [
        (Severity.WARNING, ("n2",), "began, and was not done within 60 s"),
        (Severity.WARNING, ("n3",), "no sign within 60 s: Loading python/3.11"),
    ]


def test_who_ended_without_a_report_cannot_start_hpcserve() -> None:
    (found,) = unheard(Asked(nodes=("n1",), said=("bash: python: command not found",)), (), wait_s=30)
    assert (found.severity, found.why) == (Severity.FAILURE, "hpcserve cannot be started there")
    assert found.what == "no report: bash: python: command not found"
    ((_, _, what),) = _told(Asked(nodes=("n1",), said=()))
    assert what == "no report: nothing was printed"
