"""Evidence of this host: environment, limits, /proc, /sys, devices, names, ports. Touches all that, starts nothing."""

import contextlib
import os
import random
import resource
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hpcserve.doctor.check_network import WORKER_PORTS
from hpcserve.doctor.evidence import Disk, Interface, RdmaPort
from hpcserve.site.host_text import adapter_port, natural, parse_ip_addresses

__all__ = ["free_ports", "host_facts", "interfaces_of", "kernel_facts", "look_at_disks", "rdma_ports", "text_of"]

_PORTS_TRIED = 32
_PORT_FILES = ("state", "phys_state", "rate", "link_layer")
_WRITTEN_BYTES = 2**20


def text_of(path: Path) -> str:
    """The text of a file without blanks around it; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def host_facts(environment: Mapping[str, str]) -> dict[str, Any]:
    """Environment, limits, the host's name and what it resolves to, room in /dev/shm, programs."""
    name = socket.gethostname()
    addresses: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    shared = Path("/dev/shm")  # noqa: S108 - the one that programs share memory by
    writable = os.access(shared, os.W_OK)
    programs = ("apptainer", "singularity", "enroot", "nvidia-smi")
    return {
        "environment": dict(environment),
        "hostname": name,
        "host_addresses": addresses,
        "locked_memory_bytes": _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        "open_files": _limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        "shared_memory_free_bytes": shutil.disk_usage(shared).free if writable else None,
        "programs": frozenset(program for program in programs if shutil.which(program)),
    }


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def interfaces_of(described: str, *, root: Path = Path("/")) -> tuple[Interface, ...]:
    """Interfaces of what `ip -json address show` printed, with the speed that /sys gives.

    Raises InputError where it printed no list of interfaces.
    """
    return tuple(
        Interface(
            name=one.name,
            addresses=one.usable_addresses,
            up=bool(one.is_up),
            # 0 where the link is down or the driver does not know
            speed_mbit_per_s=natural(text_of(root / "sys/class/net" / one.name / "speed")) or None,
        )
        for one in parse_ip_addresses(described, "ip -json address show")
    )


def rdma_ports(*, root: Path = Path("/"), opens: Callable[[Path], str] | None = None) -> tuple[RdmaPort, ...]:
    """Every port below /sys/class/infiniband, and why its device file cannot be opened."""
    ports = []
    for device in _entries(root / "sys/class/infiniband"):
        trouble = (opens or _opens)(_device_file(device, root))
        for port in _entries(device / "ports"):
            seen = adapter_port(device.name, int(port.name), {name: text_of(port / name) for name in _PORT_FILES})
            ports.append(RdmaPort(seen=seen, numa=natural(text_of(device / "device/numa_node")), trouble=trouble))
    return tuple(ports)


def _device_file(device: Path, root: Path) -> Path:
    """The verbs file of a device, `/dev/infiniband/uverbs0`, by the name that its PCI device has for it."""
    names = [entry.name for entry in _entries(device / "device/infiniband_verbs")]
    return root / "dev/infiniband" / (names[0] if names else f"uverbs-of-{device.name}")


def _opens(path: Path) -> str:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def kernel_facts(*, root: Path = Path("/")) -> dict[str, Any]:
    """What the kernel is, has loaded and was booted with; devices of Slingshot and of NVLink across nodes."""
    lines = text_of(root / "proc/modules").splitlines()
    span = text_of(root / "proc/sys/net/ipv4/ip_local_port_range").split()
    channels = root / "dev/nvidia-caps-imex-channels"
    return {
        "kernel": text_of(root / "proc/sys/kernel/osrelease"),
        "kernel_modules": frozenset(line.split()[0] for line in lines if line.split()),
        "kernel_command_line": text_of(root / "proc/cmdline"),
        "iommu_groups": sum(
            text_of(group / "type") != "identity" for group in _entries(root / "sys/kernel/iommu_groups")
        ),
        "open_nvidia_driver": "Open Kernel Module" in text_of(root / "proc/driver/nvidia/version"),
        "slingshot": tuple(path.name for path in _entries(root / "dev") if path.name.startswith("cxi")),
        "imex_channel": any(path.name.startswith("channel") for path in _entries(channels)),
        "outgoing_ports": (int(span[0]), int(span[1])) if len(span) == 2 else None,  # noqa: PLR2004 - first and last
        "pid_namespace": _link(root / "proc/self/ns/pid"),
    }


def _link(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - a text and no path: `pid:[4026531836]`
    except OSError:
        return ""


def free_ports(addresses: Iterable[str]) -> tuple[int, int]:
    """Ports that were tried on the first of the addresses, and how many of them could be bound."""
    address = next(iter(addresses), None)
    if address is None:
        return 0, 0
    tried = random.sample(range(WORKER_PORTS[0], WORKER_PORTS[1] + 1), _PORTS_TRIED)
    return len(tried), sum(_binds(address, port) for port in tried)


def _binds(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as held:
        try:
            held.bind((address, port))
        except OSError:
            return False
    return True


def look_at_disks(named: Mapping[str, tuple[str, bool]]) -> tuple[Disk, ...]:
    """Directories by what they are called: path, and whether it must be writable.

    Where it must, 1 MiB is written below it and removed: a full disk, a quota and a read-only mount show only so. One
    that is not there yet counts as its nearest parent.
    """
    disks = []
    for called, (written, writable) in named.items():
        path = Path(written).expanduser()
        there = path
        while writable and not there.exists() and there != there.parent:
            there = there.parent
        try:
            room = os.statvfs(there)
        except OSError as error:
            disks.append(
                Disk(called=called, path=str(path), trouble=error.strerror or "?", free_bytes=0, free_files=None)
            )
            continue
        disks.append(
            Disk(
                called=called,
                path=str(path),
                trouble=_write_trouble(there) if writable else _read_trouble(there),
                free_bytes=room.f_bavail * room.f_frsize,
                free_files=room.f_favail if room.f_files else None,
            )
        )
    return tuple(disks)


def _read_trouble(folder: Path) -> str:
    try:
        with os.scandir(folder) as entries:
            next(entries, None)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return ""


def _write_trouble(folder: Path) -> str:
    path = folder / f".hpcserve-doctor-{socket.gethostname()}-{os.getpid()}-{random.getrandbits(64):x}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            left = _WRITTEN_BYTES
            while left:
                left -= os.write(descriptor, bytes(left))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            path.unlink()
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return ""
