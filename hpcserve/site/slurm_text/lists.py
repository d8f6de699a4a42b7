"""Lists of one expression a line, as people collect them: host lists, GRES, node states."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcserve.errors import Mistake
from hpcserve.site.hostlist import HostListError, expand_hosts
from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.slurm_text.gres import parse_gres
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.node_state import usable

__all__ = ["Expressions", "expressions_of", "parse_gres_lines", "parse_host_lists", "parse_states"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressions:
    """What each line means, by the line; `error` for one that means nothing, which is then among `mistakes`."""

    meanings: Mapping[str, Any]
    mistakes: tuple[Mistake, ...] = ()


_ERROR = "error"


def parse_host_lists(text: str, source: str) -> Expressions:
    """The names that each line stands for; raises InputError only where they are too many together."""
    budget = Mistakes(source)
    names = Names(budget)

    def read(line: str, place: Place) -> list[str]:
        try:
            found = expand_hosts(line)
        except HostListError as error:
            raise ValueError(error.message) from None
        names.spend(len(found), place)
        return list(found)

    return _read(text, source, read, "a Slurm host list was wanted", "write it as in node[01-04,07],login1")


def parse_gres_lines(text: str, source: str) -> Expressions:
    """How many GPUs of which type each line names."""

    def read(line: str, _: Place) -> dict[str, Any]:
        found = parse_gres(line)
        return {"gpus": found.gpus, "types": dict(found.types)}

    return _read(text, source, read, "a GRES was wanted", "write it as in gpu:h100:8")


def parse_states(text: str, source: str) -> Expressions:
    """Whether a job could start on a node in each state; null where that depends."""
    return _read(text, source, lambda line, _: usable(line), "a node state was wanted", "write it as in IDLE+DRAIN")


def expressions_of(found: Expressions) -> Mapping[str, Any]:
    """The meanings by line."""
    return dict(found.meanings)


def _read(text: str, source: str, read: Callable[[str, Place], Any], wanted: str, remedy: str) -> Expressions:
    meanings: dict[str, Any] = {}
    mistakes = Mistakes(source)
    for place, line in _lines(text):
        if line in meanings:
            continue
        try:
            meanings[line] = read(line, place)
        except ValueError as error:
            meanings[line] = _ERROR
            mistakes.add(place, str(error), wanted, remedy)
    return Expressions(meanings=meanings, mistakes=mistakes.found)


def _lines(text: str) -> Iterator[tuple[Place, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if bare and not bare.startswith("#"):
            yield Place(number, len(line) - len(line.lstrip()) + 1), bare
