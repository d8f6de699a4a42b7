"""`scontrol show node`, `show partition` and `show config` -> what they say; in several lines or one (`-o`)."""

import re

from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.slurm_text.fields import gres_of, limit_of, number_of, state_of, text_of, truth_of, words_of
from hpcserve.site.slurm_text.machines import MachineList, NodeFacts, PartitionFacts
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.settings import Setting, printed

__all__ = ["parse_show_config", "parse_show_node", "parse_show_partition"]

_SETTING = re.compile(r"^([A-Za-z][A-Za-z0-9_()]*+)\s*+= ?(.*)$", re.MULTILINE)


def parse_show_node(text: str, source: str) -> MachineList:
    """The nodes that `scontrol show node` prints; raises InputError with every mistake."""
    mistakes = Mistakes(source)
    names = Names(mistakes)
    nodes: list[NodeFacts] = []
    for values in _records(text, "NodeName", mistakes):
        head = values["NodeName"]
        state, usable = state_of(values, "State", mistakes)
        gres = gres_of(values, "Gres", mistakes)
        if gres is not None and not gres.types:
            # Slurm without gres.conf of its own on a node can still count them among its TRES.
            gres = gres_of(values, "CfgTRES", mistakes) or gres
        nodes.append(
            NodeFacts(
                hosts=names.expand(head.value, head.value_place),
                gres=gres,
                memory_mib=number_of(values, "RealMemory", mistakes),
                cpus=number_of(values, "CPUTot", mistakes),
                sockets=number_of(values, "Sockets", mistakes),
                cores_per_socket=number_of(values, "CoresPerSocket", mistakes),
                threads_per_core=number_of(values, "ThreadsPerCore", mistakes),
                features=words_of(values, "ActiveFeatures", "AvailableFeatures", "Features"),
                state=state,
                usable=usable,
                partitions=words_of(values, "Partitions"),
                address=text_of(values, "NodeAddr"),
            )
        )
    mistakes.check()
    return MachineList(nodes=tuple(nodes))


def parse_show_partition(text: str, source: str) -> MachineList:
    """The partitions that `scontrol show partition` prints; raises InputError with every mistake."""
    mistakes = Mistakes(source)
    names = Names(mistakes)
    partitions: list[PartitionFacts] = []
    for values in _records(text, "PartitionName", mistakes):
        nodes, share = text_of(values, "Nodes"), text_of(values, "OverSubscribe") or text_of(values, "Shared")
        state = text_of(values, "State")
        partitions.append(
            PartitionFacts(
                name=values["PartitionName"].value,
                hosts=names.expand(nodes, values["Nodes"].value_place) if nodes else (),
                default=bool(truth_of(values, "Default")),
                exclusive=None if share is None else share.upper() == "EXCLUSIVE",
                max_time=limit_of(values, "MaxTime"),
                max_nodes=number_of(values, "MaxNodes", mistakes),
                topology=text_of(values, "Topology"),
                up=None if state is None else state.upper() == "UP",
            )
        )
    mistakes.check()
    return MachineList(partitions=tuple(partitions))


def parse_show_config(text: str, source: str) -> MachineList:
    """The settings that `scontrol show config` prints; raises InputError where there are none."""
    settings = tuple((match[1], match[2].strip()) for match in _SETTING.finditer(text))
    if not settings:
        mistakes = Mistakes(source)
        _nothing(mistakes, "`Key = value` lines")
    return MachineList(settings=settings)


def _records(text: str, head: str, mistakes: Mistakes) -> list[dict[str, Setting]]:
    """Records by key; the first of a key counts, as free text such as a reason comes after what Slurm itself says."""
    records: list[dict[str, Setting]] = []
    for record in printed(text, frozenset({head})):
        values: dict[str, Setting] = {}
        for setting in record:
            values.setdefault(setting.key, setting)
        if head in values:
            records.append(values)
    if not records:
        _nothing(mistakes, f"a record `{head}=`")
    return records


def _nothing(mistakes: Mistakes, wanted: str) -> None:
    mistakes.add(Place(1, 1), "nothing of this kind", f"{wanted} was wanted", "collect the text again")
    mistakes.check()
