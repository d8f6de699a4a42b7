"""The ways to ask this Slurm for a plan's nodes, and which nodes each allows. No option that it lacks is among them."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcserve.fabric import Fabric
from hpcserve.nouns import Ask, Site
from hpcserve.placement.allocations_drawn import (
    by_leaf,
    cut_blocks,
    least_lucky,
    luckiest,
    poorest,
    would_take,
)
from hpcserve.site import expand_hosts, fold_hosts

__all__ = ["Openings", "Way", "Ways"]

_MOST_SWITCHES = 3
"""`--switches=N` that are worth a line; more leaves are hardly told apart."""
_MOST_FEATURES = 4
"""Single features that are worth a line, those of most nodes."""
_PLAIN = re.compile(r"[\w.:&-]+")
"""A constraint that another can be added to with `&`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """What Slurm says of its nodes now."""

    idle: frozenset[str]
    """Nodes of the partition on which a job could start."""
    jobless: frozenset[str] | None = None
    """Nodes of the cluster that hold no job, those that are down or drained among them; None: not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to ask, and what Slurm may grant for it."""

    constraint: str | None
    worst: tuple[str, ...]
    likely: tuple[str, ...] | None
    """What it would grant now; None: too few are idle, or nobody knows which are."""
    best: tuple[str, ...]
    """Nodes of which the best ones are meant."""


@dataclass(frozen=True, kw_only=True)
class Ways:
    """The ways to ask for `count` nodes of a partition; `planned` are those of the best placement."""

    ask: Ask
    count: int
    planned: tuple[str, ...]
    names: tuple[str, ...]
    """Nodes of the partition that have the GPUs."""
    fabric: Fabric
    site: Site
    openings: Openings | None

    def all(self) -> tuple[Way, ...]:
        """The plan's nodes by name first, then the constraints, no constraint last."""
        found = [self._by_name(), *self._by_switches(), *self._by_blocks(), *self._by_features(), self._free()]
        return tuple(way for way in found if way is not None)

    @property
    def _packs(self) -> bool:
        return self.site.slurm is not None and self.site.slurm.topology in {"tree", "block"}

    def _idle(self, names: Collection[str]) -> list[str]:
        """Those of the names that are idle; none where nobody knows."""
        return [] if self.openings is None else [name for name in names if name in self.openings.idle]

    def _by_name(self) -> Way:
        idle = self._idle(self.planned) == list(self.planned) and len(self._idle(self.names)) >= self.count
        return Way(
            constraint=f"--nodelist={fold_hosts(self.planned)}",
            worst=self.planned,
            likely=self.planned if idle else None,
            best=self.planned,
        )

    def _free(self) -> Way | None:
        """With topology/block a job that fits a base block is put into one.

        Source: SageMaker HyperPod's guide to UltraServers, of `BlockSizes=18` and jobs of up to 18 nodes.
        """
        dialect = self.site.slurm
        base = dialect.block_sizes[0] if dialect and dialect.topology == "block" and dialect.block_sizes else 0
        roomy = [block for block in self._blocks if len(block) >= self.count]
        if roomy and self.count <= base:
            worst: tuple[str, ...] | None = self._worst_of(roomy)
        else:
            leaves = min(self.count, len(by_leaf(self.names, self.fabric)))
            worst = least_lucky(self.names, self.count, leaves, self.fabric)
        likely = would_take(self._idle(self.names), self.count, self.fabric, packs=self._packs)
        return None if worst is None else Way(constraint=None, worst=worst, likely=likely, best=self.planned)

    def _by_switches(self) -> Iterator[Way]:
        if self.site.slurm is None or not self.site.slurm.switches_option:
            return
        likely = would_take(self._idle(self.names), self.count, self.fabric, packs=True)
        for leaves in range(1, min(_MOST_SWITCHES, self.count, len(by_leaf(self.names, self.fabric))) + 1):
            worst = least_lucky(self.names, self.count, leaves, self.fabric)
            if worst is not None:
                yield Way(
                    constraint=f"--switches={leaves}",
                    worst=worst,
                    likely=likely if likely and len(by_leaf(likely, self.fabric)) <= leaves else None,
                    best=self.planned
                    if len(by_leaf(self.planned, self.fabric)) <= leaves
                    else luckiest(self.names, self.count, leaves, self.fabric),
                )

    @cached_property
    def _blocks(self) -> list[list[str]]:
        """The partition's nodes of each block."""
        names = set(self.names)
        return [[host for host in expand_hosts(block.hosts) if host in names] for block in self.site.blocks]

    def _by_blocks(self) -> Iterator[Way]:
        if self.site.slurm is None or not self.site.slurm.has_segments:
            return
        segment = self.ask.segment
        if segment is not None:
            poor = sorted((poorest(block, self.fabric) for block in self._blocks if block), key=self._poverty)
            worst = cut_blocks(poor, segment, self.count, packs=False)
            likely = cut_blocks([self._idle(block) for block in self._blocks], segment, self.count, packs=True)
            if worst is not None:
                yield Way(constraint=f"--segment={segment}", worst=worst, likely=likely, best=self.planned)
        roomy = [block for block in self._blocks if len(block) >= self.count]
        if roomy:
            yield Way(
                constraint="--exclusive=topo",
                worst=self._worst_of(roomy),
                likely=self._of_a_jobless_block(),
                best=self._best_of(roomy),
            )

    def _worst_of(self, groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """Of the group with the poorest node its poorest ones."""
        return tuple(poorest(min(groups, key=self._poverty), self.fabric)[: self.count])

    def _best_of(self, groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """The plan's nodes where one group has them, else all of the group with the richest node."""
        if any(set(self.planned) <= set(group) for group in groups):
            return self.planned
        return tuple(max(groups, key=lambda group: max(map(self._order.__getitem__, group))))

    def _poverty(self, group: Iterable[str]) -> int:
        """Where its poorest node stands among all, from the poorest on."""
        return min(map(self._order.__getitem__, group))

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(poorest(self.names, self.fabric))}

    def _of_a_jobless_block(self) -> tuple[str, ...] | None:
        """Idle nodes of the smallest block that holds no job, nodes of other partitions counted."""
        jobless = self.openings.jobless if self.openings is not None else None
        if jobless is None:
            return None
        blocks = zip(self.site.blocks, self._blocks, strict=True)
        free = [self._idle(own) for block, own in blocks if jobless.issuperset(expand_hosts(block.hosts))]
        enough = [nodes for nodes in free if len(nodes) >= self.count]
        return tuple(min(enough, key=len)[: self.count]) if enough else None

    def _by_features(self) -> Iterator[Way]:
        """Each feature that only some nodes have; those of single leaves together: all nodes of any one of `[a|b]`."""
        own = self.site.slurm.constraint if self.site.slurm is not None else None
        if self.site.slurm is None or (own is not None and not _PLAIN.fullmatch(own)):
            return
        prefix = f"--constraint={own}&" if own is not None else "--constraint="
        of_leaf: dict[str, tuple[str, list[str]]] = {}
        single: dict[frozenset[str], tuple[str, list[str]]] = {}
        for feature, nodes in self._features.items():
            under = list(by_leaf(nodes, self.fabric))
            if self.count <= len(nodes) < len(self.names):
                if len(under) == 1:
                    of_leaf.setdefault(under[0], (feature, nodes))
                single.setdefault(frozenset(nodes), (feature, nodes))
        if len(of_leaf) > 1:
            yield self._any_of(prefix, list(of_leaf.values()))
            single = {key: one for key, one in single.items() if one not in of_leaf.values()}
        for feature, nodes in sorted(single.values(), key=lambda one: -len(one[1]))[:_MOST_FEATURES]:
            leaves = min(self.count, len(by_leaf(nodes, self.fabric)))
            worst = least_lucky(nodes, self.count, leaves, self.fabric)
            if worst is not None:
                yield Way(
                    constraint=f"{prefix}{feature}",
                    worst=worst,
                    likely=would_take(self._idle(nodes), self.count, self.fabric, packs=self._packs),
                    best=self.planned if set(self.planned) <= set(nodes) else tuple(nodes),
                )

    def _any_of(self, prefix: str, groups: Sequence[tuple[str, list[str]]]) -> Way:
        members = [nodes for _, nodes in groups]
        now = (would_take(self._idle(nodes), self.count, self.fabric, packs=False) for nodes in members)
        return Way(
            constraint=f"{prefix}[{'|'.join(feature for feature, _ in groups)}]",
            worst=self._worst_of(members),
            likely=next((nodes for nodes in now if nodes is not None), None),
            best=self._best_of(members),
        )

    @cached_property
    def _features(self) -> dict[str, list[str]]:
        """The partition's nodes that have each feature, as far as the site names any."""
        found: dict[str, set[str]] = {}
        for group in self.site.nodes:
            for feature in group.features:
                found.setdefault(feature, set()).update(expand_hosts(group.hosts))
        return {feature: [name for name in self.names if name in hosts] for feature, hosts in found.items()}
