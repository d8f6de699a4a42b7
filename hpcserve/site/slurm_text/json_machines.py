"""What `scontrol show node` or `partition` and `sinfo` print with `--json` -> nodes and partitions."""

import json
from collections.abc import Iterator
from typing import Any

from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.slurm_text.gres import Gres, parse_gres
from hpcserve.site.slurm_text.machines import MachineList, NodeFacts, PartitionFacts
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.node_state import usable

__all__ = ["looks_like_json", "parse_json_machines"]

_START = Place(1, 1)


def looks_like_json(text: str) -> bool:
    """Whether a text is a JSON object with nodes or partitions of Slurm."""
    at = text.find("{")
    return at >= 0 and not text[:at].strip() and any(f'"{key}"' in text for key in ("nodes", "partitions", "sinfo"))


def parse_json_machines(text: str, source: str) -> MachineList:
    """The nodes and partitions; raises InputError with every mistake. Slurm 22.05 to 26 write values differently."""
    mistakes = Mistakes(source)
    names = Names(mistakes)
    data = _load(text, mistakes)
    if isinstance(data, dict) and "sinfo" in data:
        _wrong(
            mistakes, "the groups of `sinfo --json`", "nodes one by one were wanted", "run `scontrol show node --json`"
        )
    found = [key for key in ("nodes", "partitions") if isinstance(data, dict) and isinstance(data.get(key), list)]
    if not found:
        _wrong(mistakes, "no list `nodes` or `partitions`", "one of them was wanted", "collect the text again")
    mistakes.check()
    nodes = tuple(_node(item, place, names, mistakes) for item, place in _items(data, "nodes", mistakes))
    partitions = tuple(_partition(item, place, names, mistakes) for item, place in _items(data, "partitions", mistakes))
    mistakes.check()
    return MachineList(nodes=nodes, partitions=partitions)


def _load(text: str, mistakes: Mistakes) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        mistakes.add(Place(error.lineno, error.colno), error.msg, "JSON was wanted", "collect the text again, whole")
    except (ValueError, RecursionError):
        _wrong(mistakes, "numbers or nesting of no sane size", "JSON of Slurm was wanted", "collect the text again")
    return None


def _items(data: dict[str, Any], key: str, mistakes: Mistakes) -> Iterator[tuple[dict[str, Any], str]]:
    listed = data.get(key)
    for index, item in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            yield item, f"{key}[{index}]"
        else:
            _wrong(mistakes, f"`{key}[{index}]` without a name", "an object with one was wanted", "collect it again")


def _node(item: dict[str, Any], place: str, names: Names, mistakes: Mistakes) -> NodeFacts:
    state = "+".join(_words(item.get("state")) + _words(item.get("state_flags"))) or None
    address = item.get("address")
    return NodeFacts(
        hosts=names.expand(item["name"], _START),
        gres=_gres(item, place, mistakes),
        memory_mib=_number(item.get("real_memory")),
        cpus=_number(item.get("cpus")),
        sockets=_number(item.get("sockets")),
        cores_per_socket=_number(item.get("cores")),
        threads_per_core=_number(item.get("threads")),
        features=_words(item.get("active_features")) or _words(item.get("features")),
        state=state,
        usable=_usable(state, place, mistakes),
        partitions=_words(item.get("partitions")),
        address=address if isinstance(address, str) and address else None,
    )


def _gres(item: dict[str, Any], place: str, mistakes: Mistakes) -> Gres | None:
    found: Gres | None = None
    for key in ("gres", "tres"):
        text = item.get(key)
        if isinstance(text, str) and (found is None or not found.types):
            try:
                found = parse_gres(text)
            except ValueError as error:
                _wrong(mistakes, f"`{place}.{key}`: {error}", "a GRES was wanted", "collect the text again")
    return found


def _usable(state: str | None, place: str, mistakes: Mistakes) -> bool | None:
    if state is None:
        return None
    try:
        return usable(state)
    except ValueError as error:
        _wrong(mistakes, f"`{place}.state`: {error}", "a node state was wanted", "collect the text again")
        return None


def _partition(item: dict[str, Any], place: str, names: Names, mistakes: Mistakes) -> PartitionFacts:
    nodes, most = _below(item, "nodes"), _below(item, "maximums")
    configured = nodes.get("configured")
    if configured is not None and not isinstance(configured, str):
        _wrong(mistakes, f"`{place}.nodes.configured` is no text", "a host list was wanted", "collect the text again")
    share = _below(most, "oversubscribe").get("jobs")
    state = _words(_below(item, "partition").get("state"))
    topology = item.get("topology")
    return PartitionFacts(
        name=item["name"],
        hosts=names.expand(configured, _START) if isinstance(configured, str) and configured else (),
        default="DEFAULT" in (word.upper() for word in _words(item.get("flags"))),
        # max_share of partition_info_t: 0 is OverSubscribe=EXCLUSIVE (slurm.h)
        exclusive=share == 0 if isinstance(share, int) else None,
        max_time=_minutes(most.get("time")),
        max_nodes=_number(most.get("nodes")),
        topology=topology if isinstance(topology, str) and topology else None,
        up="UP" in (word.upper() for word in state) if state else None,
    )


def _below(item: dict[str, Any], key: str) -> dict[str, Any]:
    value = item.get(key)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int | None:
    """A number, plain or as {"set", "infinite", "number"}; None where it is not set or without a limit."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _minutes(value: Any) -> str | None:
    if isinstance(value, dict) and value.get("infinite"):
        return "UNLIMITED"
    minutes = _number(value)
    if minutes is None:
        return None
    return f"{minutes // 1440}-{minutes % 1440 // 60:02}:{minutes % 60:02}:00"


def _words(value: Any) -> tuple[str, ...]:
    """Words in a list, or in a text between commas."""
    if isinstance(value, str):
        value = value.split(",")
    return tuple(word for word in value if isinstance(word, str) and word) if isinstance(value, list) else ()


def _wrong(mistakes: Mistakes, found: str, wanted: str, remedy: str) -> None:
    mistakes.add(_START, found, wanted, remedy)
