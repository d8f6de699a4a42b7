"""What several workers of a plan use together, in words."""

from collections.abc import Iterator, Sequence

from hpcserve.nouns import PlannedWorker

__all__ = ["shared_by"]


def shared_by(workers: Sequence[PlannedWorker], *, mode: str) -> tuple[str, ...]:
    """A line for every NIC that several workers send or receive KV through, and for every node whose cores they share.

    An aggregated worker moves no KV: its NIC is nobody's concern.
    """
    users: dict[tuple[str, str], dict[str, None]] = {}
    for worker in workers:
        for what, node in _used(worker, mode):
            users.setdefault((what, node), {})[worker.id] = None
    return tuple(
        f"{_listed(list(together))} share {what} of {node}"
        for (what, node), together in users.items()
        if len(together) > 1
    )


def _used(worker: PlannedWorker, mode: str) -> Iterator[tuple[str, str]]:
    for rank in worker.ranks:
        if mode == "disaggregated":
            for nic in rank.nics:
                yield f"NIC {nic}", rank.node
        if rank.cores:
            yield f"cores from {rank.cores[0]} on", rank.node


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
