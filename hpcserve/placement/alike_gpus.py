"""Which GPUs of a node are alike, and which rails may change places."""

from collections.abc import Hashable, Iterable, Sequence

from hpcserve.fabric import Fabric, GpuAt
from hpcserve.placement.candidate import Candidate, Seat, Used

__all__ = ["AlikeGpus"]

GpuKind = tuple[Hashable, ...]


class AlikeGpus:
    """The kinds of all candidates' GPUs, and their rails where rails have leaves of their own.

    `roughly`: what was measured of single nodes tells no GPUs apart. `regular`: each switch stands for one rail of one
    part of the fabric; no rails change places otherwise.
    """

    def __init__(self, fabric: Fabric, candidates: Sequence[Candidate], *, roughly: bool, regular: bool) -> None:
        self._fabric = fabric
        self._roughly = roughly
        self._kinds = [self._kinds_of(candidate) for candidate in candidates]
        self._rails = [{gpu: self._rail(candidate, gpu) for gpu in candidate.gpus} for candidate in candidates]
        self._class = self._rail_classes(candidates, regular=regular)

    @property
    def has_one_a_rail(self) -> bool:
        """Whether rails have leaves of their own, and no node has two GPUs on one."""
        return all(None not in rails.values() and len(set(rails.values())) == len(rails) for rails in self._rails)

    def meetings(self, seat: Seat, other: Seat) -> int:
        """Of two seats of equally many ranks how many ranks are on equal rails."""
        rails, others = self._rails[seat.node], self._rails[other.node]
        return sum(rails[gpu] == others[met] for gpu, met in zip(seat.gpus, other.gpus, strict=True))

    def touched(self, used: Used) -> set[int | None]:
        """The rails that any GPU in use is on."""
        if not self._class:
            return set()
        return {self._rails[node][gpu] for node, gpus in used.items() for gpu in gpus}

    def groups(self, node: int, gpus: Iterable[int], touched: set[int | None] | None) -> list[list[int]]:
        """GPUs of a node in groups of alike ones; with `touched`, rails that are not in it may change places."""
        found: dict[Hashable, list[int]] = {}
        for gpu in gpus:
            rail = self._rails[node][gpu]
            railed = None if rail is None else (rail, 0)
            if rail is not None and touched is not None and rail not in touched:
                railed = (self._class[rail], 1)
            found.setdefault((self._kinds[node][gpu], railed), []).append(gpu)
        return list(found.values())

    def _kinds_of(self, candidate: Candidate) -> dict[int, GpuKind]:
        """GPUs of one kind may be swapped: same island, same NIC or each alone on one of its kind, nothing measured."""
        kind = self._fabric.node_type(candidate.name)
        nics = {gpu: self._fabric.nic(GpuAt(candidate.name, gpu)) for gpu in candidate.gpus}
        users = [nic.name for nic in nics.values()]
        measured = not self._roughly and self._fabric.is_measured(candidate.name)
        kinds: dict[int, GpuKind] = {}
        for gpu, nic in nics.items():
            island = next((number for number, one in enumerate(kind.nvlink) if gpu in one.gpus), -1)
            own = kind.nics.index(nic) if users.count(nic.name) > 1 else -1
            numa = kind.gpu.numa
            far = numa is not None and nic.numa is not None and gpu < len(numa) and numa[gpu] != nic.numa
            slot = nic.slot.known_gb_per_s if nic.slot else None
            kinds[gpu] = (island, own, nic.kind, nic.rate.known_gb_per_s, slot, far, gpu if measured else -1)
        return kinds

    def _rail(self, candidate: Candidate, gpu: int) -> int | None:
        """The rail of a GPU's NIC, where rails have leaves of their own."""
        rail = self._fabric.nic(GpuAt(candidate.name, gpu)).rail
        return rail if len(self._fabric.leaves_of(candidate.name)) > 1 else None

    def _rail_classes(self, candidates: Sequence[Candidate], *, regular: bool) -> dict[int, int]:
        """For each rail the first one that it may change places with on all nodes at once."""
        said: dict[int, list[Hashable]] = {
            rail: [] for rails in self._rails for rail in sorted({rail for rail in rails.values() if rail is not None})
        }
        for rails, kinds in {
            (tuple(rails.items()), tuple(kinds.items())): (rails, kinds)
            for rails, kinds in zip(self._rails, self._kinds, strict=True)
        }.values():
            for rail, words in said.items():
                words.append(tuple(sorted(str(kinds[gpu]) for gpu, one in rails.items() if one == rail)))
        for leaves in {tuple(self._fabric.leaves_of(one.name).items()): None for one in candidates}:
            above = {rail: self._fabric.switches_above(leaf) for rail, leaf in leaves}
            regular = regular and _is_even(list(above.values()))
            for rail, words in said.items():
                words.append(tuple(map(self._fabric.switch_likeness, above.get(rail, ()))))
        first: dict[Hashable, int] = {}
        return {rail: first.setdefault(tuple(words) if regular else rail, rail) for rail, words in said.items()}


def _is_even(chains: Sequence[Sequence[str]]) -> bool:
    """Whether at every level the rails meet in one switch or stay apart, all of them."""
    depth = max(map(len, chains))
    levels = [[chain[min(level, len(chain) - 1)] for chain in chains] for level in range(depth)]
    return all(len(set(level)) in {1, len(level)} for level in levels)
