"""Findings of many nodes, told once."""

from hpcserve.doctor.finding import Finding, Severity, worst
from hpcserve.doctor.fold import folded, shown_findings


def _finding(node: str, what: str = "locked memory is limited", severity: Severity = Severity.FAILURE) -> Finding:
    bad = severity in {Severity.FAILURE, Severity.WARNING}
    return Finding(
        check="locked-memory",
        severity=severity,
        what=what,
        nodes=(node,),
        why="it fails" if bad else "",
        remedy="raise it" if bad else "",
    )


def test_the_same_on_many_nodes_is_one_finding_with_a_host_list() -> None:
    found = [_finding(f"n{number:02}") for number in range(1, 41)] + [_finding("n07", "something else")]
    assert [one.nodes for one in folded(found)] == [tuple(f"n{number:02}" for number in range(1, 41)), ("n07",)]
    shown = shown_findings(found, every=False)
    assert "where: n[01-40]" in shown
    assert shown.count("FAILURE") == 2


def test_failures_come_first_and_what_is_right_is_only_named() -> None:
    found = [
        _finding("n1", "all is well", Severity.OK).model_copy(update={"check": "ports"}),
        _finding("n1", "slow", Severity.WARNING),
        _finding("n1", "dead"),
    ]
    lines = shown_findings(found, every=False).splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["FAILURE", "WARNING", "Without"]
    assert lines[-1] == "Without complaint: ports."
    assert "all is well (n1)" in shown_findings(found, every=True)


def test_what_was_not_looked_at_is_not_called_right() -> None:
    nothing = _finding("n1", "no GPU", Severity.NOT_APPLICABLE).model_copy(update={"check": "gpus"})
    mixed = [nothing.model_copy(update={"check": "ports"}), _finding("n2", "", Severity.OK)]
    mixed[1] = mixed[1].model_copy(update={"check": "ports"})
    lines = shown_findings([nothing, *mixed], every=False).splitlines()
    assert lines == ["Without complaint: ports.", "Not looked at (--all says why): gpus."]
    assert "Not looked at: gpus." in shown_findings([nothing], every=True)


def test_the_worst_decides() -> None:
    assert worst(()) == Severity.OK
    assert worst((_finding("a", severity=Severity.NOT_APPLICABLE),)) == Severity.OK
    assert worst((_finding("a", severity=Severity.WARNING), _finding("a", severity=Severity.OK))) == Severity.WARNING


def test_a_node_that_is_complained_of_is_not_without_complaint_elsewhere() -> None:
    found = [_finding("n1", "fine", Severity.OK), _finding("n2", "bad")]
    assert "Without complaint: nothing." in shown_findings(found, every=False)
