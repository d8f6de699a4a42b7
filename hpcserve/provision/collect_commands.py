"""The commands that print what an import reads: on a login node, and on one node of each kind."""

import re
import shlex
from dataclasses import dataclass

__all__ = ["COMMAND_WITHIN_S", "HERE", "MARK", "ON_A_NODE", "commands_in_words", "script_of_a_node"]

MARK = re.compile(r"^=== hpcserve (begin|end) ([a-z-]+)(?: (\d+))? ===$")
"""What the script prints before and after each text: the text's kind, and the command's exit code."""
COMMAND_WITHIN_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: the kind of text that it prints, and whether an import is worth nothing without it."""

    kind: str
    argv: tuple[str, ...]
    needed: bool = False


HERE: tuple[Command, ...] = (
    Command(kind="scontrol-show-config", argv=("scontrol", "show", "config"), needed=True),
    Command(kind="scontrol-show-node", argv=("scontrol", "show", "node"), needed=True),
    Command(kind="scontrol-show-partition", argv=("scontrol", "show", "partition"), needed=True),
    Command(kind="scontrol-show-topology", argv=("scontrol", "show", "topology")),
    Command(kind="ibnetdiscover", argv=("ibnetdiscover",)),
)
"""Run on this machine."""

_SYSFS = (
    "/sys/devices/system/node/node*/cpulist"
    " /sys/class/net/*/{speed,operstate,mtu,device/numa_node}"
    " /sys/class/infiniband/*/device/{numa_node,current_link_speed,current_link_width}"
    " /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer}"
)
"""As bash expands it."""

ON_A_NODE: tuple[tuple[str, str], ...] = (
    ("nvidia-smi-topo", "nvidia-smi topo -m"),
    ("nvidia-smi-q", "nvidia-smi -q"),
    ("ibstat", "ibstat"),
    ("lscpu", "lscpu"),
    ("ip-addr", "ip -json addr"),
    # grep ends with 2 where it could not read one of them: a port that is down has no speed.
    ("sysfs", f"grep -s . {_SYSFS} || true"),
)
"""Run by bash on one node of each kind: the kind of text, and the command."""


def commands_in_words() -> str:
    """The same commands for someone who collects files by hand, one a line, as a shell takes them."""
    lines = ["# On a login node; ibnetdiscover needs root and an InfiniBand fabric.", "mkdir -p collected"]
    lines += [_kept(" ".join(command.argv), f"collected/{command.kind}.txt") for command in HERE]
    lines += [
        "# On one node of each kind, say NODE: the folder's name tells the import which node it was.",
        "NODE=$(hostname -s)",
    ]
    lines.append('mkdir -p "collected/$NODE"')
    lines += [_kept(command, f'"collected/$NODE/{kind}.txt"') for kind, command in ON_A_NODE]
    lines += [
        "# Then, anywhere; a tool that is not there or fails leaves no file, and one that says nothing an empty one.",
        "find collected -type f -empty -delete",
        "hpcserve site import collected --into SITE.yaml",
    ]
    return "\n".join(lines) + "\n"


def _kept(command: str, file: str) -> str:
    """A line that keeps what a command prints, and nothing of one that fails: many print why not on stdout."""
    lenient = command.removesuffix(" || true")
    return f"{lenient} > {file}" if lenient != command else f"{command} > {file} || rm {file}"


def script_of_a_node() -> str:
    """The commands for bash, each between marks and with a limit of its own; its stderr is part of what it prints."""
    lines = ["export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin"]
    for kind, command in ON_A_NODE:
        lines += [
            f"echo '=== hpcserve begin {kind} ==='",
            f"timeout {COMMAND_WITHIN_S} bash -c {shlex.quote(command)} </dev/null 2>&1; code=$?",
            "echo",
            f'echo "=== hpcserve end {kind} $code ==="',
        ]
    return "\n".join(lines)
