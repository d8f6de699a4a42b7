"""Mistakes in a site's `transport` and `runtimes`."""

from collections.abc import Iterator, Mapping
from typing import Any

from hpcserve.site.reading import at, items_of, nearest, pairs_of, text_at
from hpcserve.wire import Complaint

__all__ = ["check_runtimes", "check_transport"]

_NEED_PATH = {"venv": "the environment", "apptainer": "the image", "pyxis": "the image"}
_NO_UCX = ("efa", "slingshot")
"""NICs that UCX has no transport of its own for: it would move KV by TCP, or through software (nixl issue 909)."""


def check_transport(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Settings that placement makes, that belong to another backend, or that no NIC of the site has."""
    kinds = {
        kind
        for _, node_type in pairs_of(raw, "node_types")
        for _, nic in items_of(node_type, "nics")
        if (kind := text_at(nic, "kind")) is not None
    }
    blocks = [("transport", "ucx"), *(("transport", "kinds", kind) for kind, _ in pairs_of(raw, "transport", "kinds"))]
    for path in blocks:
        if at(raw, *path, "UCX_NET_DEVICES") is not None:
            yield Complaint(
                path=(*path, "UCX_NET_DEVICES"),
                found="`UCX_NET_DEVICES`",
                wanted="it follows from the NICs that each worker is placed on",
                remedy="remove it, and list under `nics` only ports that may carry KV",
                at_key=True,
            )
    for kind, _ in pairs_of(raw, "transport", "kinds"):
        if kinds and kind not in kinds:
            yield Complaint(
                path=("transport", "kinds", kind),
                found=f"settings for NICs of kind {kind}, and the site has none",
                wanted="a kind of the site's NICs was wanted",
                remedy=nearest(kind, kinds, none="remove them"),
                at_key=True,
            )
    backend = text_at(raw, "transport", "backend") or "ucx"
    if backend == "ucx" and pairs_of(raw, "transport", "libfabric"):
        yield Complaint(
            path=("transport", "libfabric"),
            found="settings of libfabric, and `transport.backend` is ucx",
            wanted="`backend: libfabric` was wanted with them",
            remedy="add it, or remove the settings",
            at_key=True,
        )
    transports = (text_at(raw, "transport", "ucx", "UCX_TLS") or "").split(",")
    for kind in sorted(kinds.intersection(_NO_UCX)) if backend == "ucx" and "tcp" not in transports else ():
        yield Complaint(
            path=("transport",),
            found=f"NICs of kind {kind}, and `backend` is ucx, which has no transport for them",
            wanted="`backend: libfabric` was wanted",
            remedy="add it, or name tcp in `UCX_TLS` if TCP over them is meant",
            at_key=True,
        )


def check_runtimes(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Runtimes that are missing, or lack what their kind needs."""
    runtimes = at(raw, "runtimes")
    if not isinstance(runtimes, dict):
        return
    if "hpcserve" not in runtimes:
        yield Complaint(
            path=("runtimes",),
            found="`runtimes` has no `hpcserve`",
            wanted="how hpcserve's own Python is entered was wanted",
            remedy="add `hpcserve: {kind: none}` if the Python that submits is seen by every node",
            at_key=True,
        )
    for name, runtime in runtimes.items():
        kind, path = text_at(runtime, "kind"), text_at(runtime, "path")
        if kind in _NEED_PATH and path is None:
            yield Complaint(
                path=("runtimes", name),
                found=f"runtime `{name}` of kind {kind} has no `path`",
                wanted=f"the path of {_NEED_PATH[kind]} was wanted",
                remedy="add `path:`",
                at_key=True,
            )
        if kind == "pyxis" and name == "hpcserve":
            yield Complaint(
                path=("runtimes", name, "kind"),
                found="runtime `hpcserve` of kind pyxis",
                wanted="another kind was wanted: from inside a container agents cannot start those of engines",
                remedy="use a venv on a shared path",
            )
        if kind == "modules" and not items_of(runtime, "modules"):
            yield Complaint(
                path=("runtimes", name),
                found=f"runtime `{name}` of kind modules names no module",
                wanted="at least one module was wanted",
                remedy="add `modules: [NAME]`",
                at_key=True,
            )
        yield from _check_mounts(name, kind, runtime)


def _check_mounts(name: str, kind: str | None, runtime: Any) -> Iterator[Complaint]:
    mounts = items_of(runtime, "mounts")
    if mounts and kind in ("venv", "modules", "none"):
        yield Complaint(
            path=("runtimes", name, "mounts"),
            found=f"mounts of runtime `{name}`, which is no container",
            wanted="mounts of kind apptainer or pyxis were wanted",
            remedy="remove them",
            at_key=True,
        )
    for index, mount in mounts:
        if isinstance(mount, str) and not all(part.startswith(("/", "~")) for part in mount.split(":")[:2]):
            yield Complaint(
                path=("runtimes", name, "mounts", index),
                found=f"`{mount[:80]}`, which would depend on the folder that a command is started in",
                wanted="absolute paths were wanted, `/scratch` or `/from:/to`",
                remedy="begin each with /",
            )
