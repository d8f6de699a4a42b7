"""Mistakes in a site's NVLink domains and Slurm blocks: sets of nodes that are no switches."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from hpcserve.site.reading import at, first_of, hosts_at, items_of, nearest, repeated, text_at
from hpcserve.wire import Complaint

__all__ = ["check_blocks", "check_domains"]


def check_domains(raw: Mapping[str, Any], type_of: Mapping[str, str]) -> list[Complaint]:
    """Every mistake of `nvlink_domains`: nodes that are unknown, in two domains or without GPUs; no identity."""
    complaints = _check_members(raw, "nvlink_domains", "NVLink domain", type_of)
    seen: dict[tuple[str, Any], str] = {}
    for index, domain in items_of(raw, "nvlink_domains"):
        name = text_at(domain, "name") or f"number {index + 1}"
        uuid = text_at(domain, "cluster_uuid")
        if uuid is not None and not uuid.strip("0-"):
            complaints.append(
                Complaint(
                    path=("nvlink_domains", index, "cluster_uuid"),
                    found="a cluster UUID of zeros",
                    wanted="that of a domain was wanted: nodes outside any domain print zeros",
                    remedy="remove the domain, if its nodes share NVLink only inside each",
                )
            )
        elif uuid is not None:
            identity = (uuid.lower(), at(domain, "clique"))
            if identity in seen:
                complaints.append(
                    Complaint(
                        path=("nvlink_domains", index, "cluster_uuid"),
                        found=f"cluster UUID and clique of domain `{seen[identity]}` again",
                        wanted="another UUID or clique was wanted for another domain",
                        remedy="make one domain of the two, or correct `clique`",
                    )
                )
            seen.setdefault(identity, name)
        cpu_only = [
            host
            for host in hosts_at(raw, ("nvlink_domains", index, "hosts"), [])
            if text_at(raw, "node_types", type_of.get(host, ""), "gpu", "model") == "cpu"
        ]
        if cpu_only:
            complaints.append(
                Complaint(
                    path=("nvlink_domains", index, "hosts"),
                    found=f"node {first_of(cpu_only)} of a type without GPUs",
                    wanted="nodes with GPUs were wanted",
                    remedy="remove it from the domain",
                )
            )
    return complaints


def check_blocks(raw: Mapping[str, Any], type_of: Mapping[str, str]) -> list[Complaint]:
    """Every mistake of `blocks` and of the Slurm dialect's `block_sizes`."""
    complaints = _check_members(raw, "blocks", "block", type_of)
    topology = at(raw, "slurm", "topology")
    if items_of(raw, "blocks") and ("slurm" in raw) and topology != "block":
        complaints.append(
            Complaint(
                path=("blocks",),
                found=f"blocks, and `slurm.topology` is {topology if isinstance(topology, str) else 'not given'}",
                wanted="`topology: block` was wanted with them",
                remedy="correct it, or remove `blocks`: nodes that share NVLink are `nvlink_domains`",
                at_key=True,
            )
        )
    complaints += _check_sizes(raw, topology)
    return complaints


def _check_sizes(raw: Mapping[str, Any], topology: Any) -> Iterator[Complaint]:
    path = ("slurm", "block_sizes")
    sizes = [size for _, size in items_of(raw, *path)]
    if sizes and topology != "block":
        yield Complaint(
            path=path,
            found=f"block sizes, and `slurm.topology` is {topology if isinstance(topology, str) else 'not given'}",
            wanted="`topology: block` was wanted with them",
            remedy="correct it, or remove `block_sizes`",
            at_key=True,
        )
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        return
    for index, (smaller, larger) in enumerate(pairwise(sizes), start=1):
        times, rest = divmod(larger, smaller)
        # topology.conf(5), BlockSizes: successive sizes must be a power of two larger than the prior ones.
        if rest or times < 2 or times & (times - 1):  # noqa: PLR2004 - twice is the least power of two that is larger
            yield Complaint(
                path=(*path, index),
                found=f"a block size of {larger} after {smaller}",
                wanted="a power of two times the one before was wanted",
                remedy=f"write them as in topology.conf, such as [{smaller}, {2 * smaller}]",
            )


def _check_members(raw: Mapping[str, Any], key: str, noun: str, type_of: Mapping[str, str]) -> list[Complaint]:
    """Names once, nodes known, each node in one of them."""
    owner_of: dict[str, str] = {}
    items = items_of(raw, key)
    complaints = [
        Complaint(
            path=(key,),
            found=f"two {noun}s named `{name}`",
            wanted="each once was wanted",
            remedy="rename one or merge the two",
            at_key=True,
        )
        for name in repeated(text_at(item, "name") or f"nameless {index}" for index, item in items)
    ]
    for index, item in items:
        path = (key, index, "hosts")
        name = text_at(item, "name") or f"number {index + 1}"
        hosts = hosts_at(raw, path, complaints)
        unknown = [host for host in hosts if host not in type_of]
        if unknown:
            complaints.append(
                Complaint(
                    path=path,
                    found=f"unknown node {first_of(unknown)}",
                    wanted="nodes of this site were wanted",
                    remedy=nearest(unknown[0], type_of, none="describe them under `nodes`"),
                )
            )
        doubled = [host for host in hosts if host in owner_of] + list(repeated(hosts))
        if doubled:
            already = owner_of.get(doubled[0], name)
            complaints.append(
                Complaint(
                    path=path,
                    found=f"node {first_of(doubled)} a second time, already in {noun} `{already}`",
                    wanted=f"each node in one {noun} was wanted",
                    remedy="remove it from one of the two",
                )
            )
        owner_of.update({host: name for host in hosts if host not in owner_of})
    return complaints
