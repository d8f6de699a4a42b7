"""The node gate: what an agent asks of its node before anything is started on it."""

import asyncio
from collections.abc import Mapping

from hpcserve.doctor.catalogue import GATE, KV_GATE, examine
from hpcserve.doctor.evidence import Wanted
from hpcserve.doctor.finding import Finding, Severity
from hpcserve.doctor.look_at_node import look_at_node
from hpcserve.nouns import Site
from hpcserve.site import hosts_of

__all__ = ["GATE_S", "gate", "gate_failures"]

GATE_S = 3.0
"""The longest that the gate may hold up a job."""


async def gate(site: Site, node: str, *, moves_kv: bool, environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """Failures of this node, none where it is fit to serve, where the site does not name it, or time was up.

    A node that is too slow to be asked, in all or by one command, is not refused: the checks that follow have time and
    words of their own.
    """
    try:
        return await asyncio.wait_for(
            asyncio.to_thread(gate_failures, site, node, moves_kv=moves_kv, environment=environment), timeout=GATE_S
        )
    except TimeoutError:
        return ()


def gate_failures(site: Site, node: str, *, moves_kv: bool, environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """The same, without a limit of its own."""
    if node not in hosts_of(site):
        return ()
    wanted = Wanted(site=site, node=node)
    found = examine(
        (*GATE, *(KV_GATE if moves_kv else ())), look_at_node(wanted, environment=environment, quick=True), wanted
    )
    return tuple(finding for finding in found if finding.severity == Severity.FAILURE)
