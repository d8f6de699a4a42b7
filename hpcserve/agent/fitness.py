"""Whether this node is fit to serve, found out before anything starts on it, and what becomes of one that is not."""

from collections.abc import Mapping
from pathlib import Path

from hpcserve.agent.life import is_of
from hpcserve.agent.station import LOG
from hpcserve.discovery import read_dir_record, read_records, write_record
from hpcserve.doctor import gate
from hpcserve.errors import ServiceError
from hpcserve.nouns import GrantedNode, Mode, NodeRefusal, Service, Site
from hpcserve.wire import UnreadableRecordError

__all__ = ["refusal_of", "unfit_nodes"]

_REFUSED = "refused"
_REMEDY = "`hpcserve doctor` looks at it in full; `spares: 1` in the service lets a job go on without such a node"


async def refusal_of(
    job_directory: Path, node: str, life: str, *, site: Site, service: Service, environment: Mapping[str, str]
) -> NodeRefusal | None:
    """Why this node is unfit, now recorded in `refused/`; None where it is fit.

    An agent that was started again holds to what was found in this life: workers may run already. Raises ServiceError
    for an unfit node where the service has no spares.
    """
    refusal = _known(job_directory / _REFUSED, f"{node}.json", life)
    if refusal is None and not _has_reported(job_directory, node, life):
        moves_kv = service.mode != Mode.AGGREGATED and service.engine != "sim"
        found = await gate(site, node, moves_kv=moves_kv, environment=environment)
        if found:
            refusal = NodeRefusal(
                node=node, life=life, reasons=tuple(f"{one.check}: {one.what}; {one.remedy}" for one in found)
            )
            (job_directory / _REFUSED).mkdir(mode=0o700, exist_ok=True)
            write_record(job_directory / _REFUSED / f"{node}.json", refusal)
    if refusal is not None:
        LOG.error("%s is unfit to serve: %s", node, "; ".join(refusal.reasons))
        if not service.spares:
            raise ServiceError(f"{node} is unfit to serve: {'; '.join(refusal.reasons)}", remedy=_REMEDY)
    return refusal


def unfit_nodes(job_directory: Path, life: str, *, spare: int) -> tuple[str, ...]:
    """Nodes that refused themselves in this life; raises ServiceError with their reasons where they exceed `spare`."""
    try:
        refusals = read_records(job_directory, _REFUSED, NodeRefusal).records.values()
    except OSError:
        return ()  # it is looked at again
    unfit = [refusal for refusal in refusals if refusal.life == life]
    if len(unfit) > spare:
        told = "; ".join(f"{refusal.node}: {', '.join(refusal.reasons)}" for refusal in unfit)
        raise ServiceError(f"{len(unfit)} granted nodes are unfit, {spare} were to spare: {told}", remedy=_REMEDY)
    return tuple(refusal.node for refusal in unfit)


def _known(folder: Path, name: str, life: str) -> NodeRefusal | None:
    if not folder.is_dir():
        return None
    try:
        refusal = read_dir_record(folder, name, NodeRefusal)
    except UnreadableRecordError:
        return None
    return refusal if refusal is not None and refusal.life == life else None


def _has_reported(job_directory: Path, node: str, life: str) -> bool:
    try:
        report = read_dir_record(job_directory / "nodes", f"{node}.json", GrantedNode)
    except UnreadableRecordError:
        return False
    return report is not None and is_of(life, report.generation)
