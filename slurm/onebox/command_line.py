"""The arguments of `slurm/cluster`, and what each verb does with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from slurm.onebox import inside, inspection, lifecycle
from slurm.onebox.errors import ClusterError, UsageError
from slurm.onebox.layout import Options, parse_rate
from slurm.onebox.requirements import packages
from slurm.onebox.terminal import complain, say

DEFAULT_NAME = "onebox"
_DESCRIPTION = "A real Slurm cluster of several nodes with shaped links, on this one machine."
_EPILOGUE = """\
exit codes: 0 done, 1 failed, 2 wrong arguments, 3 the cluster is down, 4 this machine lacks something;
status: 0 up, 1 degraded, 3 down; exec: the command's own.
Everything is kept in $HPCSERVE_CLUSTER_DIR/NAME (default /var/tmp/hpcserve-cluster-UID/NAME)."""


def _rate(text: str) -> int:
    try:
        return parse_rate(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """The command line. `--name` may stand before or after the verb."""
    name = argparse.ArgumentParser(add_help=False)
    name.add_argument("--name", default=argparse.SUPPRESS, help=f"the cluster (default {DEFAULT_NAME})")
    top = argparse.ArgumentParser(
        prog="slurm/cluster",
        description=_DESCRIPTION,
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[name],
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    chosen = Options()

    up = verbs.add_parser("up", parents=[name], help="start it; returns when all nodes are idle")
    up.add_argument("--nodes", type=int, default=chosen.nodes, help="default %(default)s")
    up.add_argument("--leaves", type=int, default=chosen.leaves, help="leaf switches, default %(default)s")
    up.add_argument("--gpus", type=int, default=chosen.gpus, help="of each node, default %(default)s")
    up.add_argument("--node-rate", type=_rate, default="1gbit", help="node to leaf, default %(default)s")
    up.add_argument("--uplink-rate", type=_rate, default="200mbit", help="leaf to spine, default %(default)s")
    up.add_argument("--accounting", choices=("none", "slurmdbd"), default=chosen.accounting)

    status = verbs.add_parser("status", parents=[name], help="say whether it is up, and each node's state")
    status.add_argument("--json", action="store_true")

    # Only for the help: its arguments are the command's own and are not parsed here.
    verbs.add_parser("exec", parents=[name], usage="slurm/cluster exec [--name NAME] CMD...",
                     help="run a command inside, as on a login node")  # fmt: skip

    down = verbs.add_parser("down", parents=[name], help="end everything that runs in it and remove it")
    down.add_argument("--keep-logs", action="store_true", help="leave the daemons' logs")

    link = verbs.add_parser("link", parents=[name], help="change one data link while it is in use")
    link.add_argument("link", metavar="NODE", help="a node, or a leaf for its uplink")
    link.add_argument("--rate", type=_rate, help="both directions, such as 100mbit")
    cable = link.add_mutually_exclusive_group()
    cable.add_argument("--down", dest="up", action="store_false", default=None, help="pull the cable")
    cable.add_argument("--up", dest="up", action="store_true", default=None, help="put it back")

    listing = verbs.add_parser("packages", help="print the Debian packages it needs, in one line")
    listing.add_argument("--accounting", choices=("none", "slurmdbd"), default=chosen.accounting)
    return top


def _split_command(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The arguments for the parser, and the command of `exec` (None for other verbs)."""
    position = 0
    options_end = None
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--name":
            position += 2
        elif argument.startswith("--name="):
            position += 1
        elif argument == "exec" and options_end is None:
            options_end = position
            position += 1
        else:
            break
    if options_end is None or (position < len(arguments) and arguments[position] in ("-h", "--help")):
        return list(arguments), None
    command = list(arguments[position:])
    return list(arguments[:position]), command[1:] if command[:1] == ["--"] else command


def _run(arguments: Sequence[str]) -> int:
    ours, command = _split_command(arguments)
    top = parser()
    given = top.parse_args(ours)
    name: str = getattr(given, "name", DEFAULT_NAME)
    if given.verb == "exec":
        if not command:
            top.error("exec: wanted a command to run")
        inside.execute(name, command)
    if given.verb == "up":
        options = Options(
            nodes=given.nodes,
            leaves=given.leaves,
            gpus=given.gpus,
            node_rate_bit_per_s=given.node_rate,
            uplink_rate_bit_per_s=given.uplink_rate,
            accounting=given.accounting,
        )
        lifecycle.up(name, options)
    elif given.verb == "down":
        lifecycle.down(name, keep_logs=given.keep_logs)
    elif given.verb == "link":
        inside.change_link(name, given.link, rate_bit_per_s=given.rate, up=given.up)
    elif given.verb == "packages":
        say(" ".join(packages(accounting=given.accounting)))
    else:
        status = inspection.look(name)
        say(status.as_json() if given.json else status.as_text())
        return status.exit_code
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Errors are one message and no traceback."""
    try:
        return _run(arguments)
    except ClusterError as error:
        complain(str(error))
        return error.exit_code
    except OSError as error:
        complain(str(error))
        return ClusterError.exit_code
