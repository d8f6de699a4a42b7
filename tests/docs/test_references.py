"""The references name every key, code and metric that there is, with its default, and none that there is not."""

import asyncio
import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic.fields import FieldInfo

from hpcserve.errors import HpcserveError
from hpcserve.nouns import (
    Comparison,
    Job,
    JobHandle,
    JobState,
    Network,
    Noun,
    Outlook,
    Plan,
    Rate,
    Report,
    Service,
    Site,
    Sweep,
)
from hpcserve.router.reports import Reports
from hpcserve.router.views import metrics_text
from tests.docs.pages import ROOT, table_rows
from tests.router.rig import Rig

_SHARED = {Rate: "RATE", Network: "NETWORK"}
"""Nouns that stand in several places and are described once."""

_REFERENCES = [
    ("service-reference.md", (Service,)),
    ("site-reference.md", (Site, Rate, Network)),
    ("sweep.md", (Sweep,)),
]


def _keys(noun: type[Noun], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a noun as a path: `pools[].role`, `node_types.NAME.cores`."""
    for name, field in noun.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        yield path, field
        for inner, mark in _nouns_in(field.annotation):
            if inner not in _SHARED:
                yield from _keys(inner, f"{path}{mark}.")


def _nouns_in(annotation: Any, mark: str = "") -> Iterator[tuple[type[Noun], str]]:
    if isinstance(annotation, type) and issubclass(annotation, Noun):
        yield annotation, mark
    inner = {tuple: "[]", dict: ".NAME"}.get(get_origin(annotation), mark)
    for part in get_args(annotation):
        yield from _nouns_in(part, inner)


def _words_in(annotation: Any) -> set[str]:
    """The words that a key may be set to, where it takes only certain ones."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {str(member.value) for member in annotation}
    if get_origin(annotation) is Literal:
        return {str(value) for value in get_args(annotation)}
    return {word for part in get_args(annotation) for word in _words_in(part)}


def _default(field: FieldInfo) -> str:
    """How the references write a default: as in YAML."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Noun):
        return "see below"
    plain = list(value) if isinstance(value, tuple) else value.value if isinstance(value, Enum) else value
    written = yaml.safe_dump(plain, default_flow_style=True)
    return f"`{written.removesuffix('...' + chr(10)).strip()}`"


@pytest.mark.parametrize(("page", "nouns"), _REFERENCES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_key_has_its_row_with_its_default_and_words(page: str, nouns: tuple[type[Noun], ...]) -> None:
    described = {row[0].strip("`"): row for row in table_rows(ROOT / "docs" / page) if len(row) == 4}
    described.pop("key")
    fields = {path: field for noun in nouns for path, field in _keys(noun, _prefix(noun))}
    assert described.keys() == fields.keys()
    for path, field in fields.items():
        _, kind, default, meaning = described[path]
        assert default == _default(field), path
        assert all(f"`{word}`" in kind for word in _words_in(field.annotation)), path
        assert meaning.endswith("."), path


def _prefix(noun: type[Noun]) -> str:
    return f"{_SHARED[noun]}." if noun in _SHARED else ""


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _sources(room: str) -> Iterator[str]:
    for path in sorted((ROOT / "hpcserve" / room).glob("*.py")):
        yield path.read_text(encoding="utf-8")


def test_every_error_code_of_the_router_is_described() -> None:
    codes = {
        code
        for room in ("router", "routing")
        for text in _sources(room)
        for code in re.findall(r'\bcode="(\w+)"', text)
    }
    assert len(codes) > 10
    rows = {cell.strip("`") for row in table_rows(ROOT / "docs" / "router.md") for cell in row}
    assert codes <= rows


def _metric_kinds() -> dict[str, str]:
    """What the router shows: each metric's name and kind."""

    async def shown() -> bytes:
        async with Rig() as rig:
            rig.desk.further_series.append(Reports(rig.desk.roster, rig.counters).series)
            return metrics_text(rig.desk)

    text = asyncio.run(shown()).decode()
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.MULTILINE))


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    kinds = _metric_kinds()
    histograms = {name for name, kind in kinds.items() if kind == "histogram"}
    names = kinds.keys() | {f"{name}{end}" for name in histograms for end in ("_bucket", "_sum", "_count")}
    panels = json.loads(_page("grafana.json"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    used = {name for text in asked for name in re.findall(r"hpcserve_router_\w+", text)}
    assert len(used) > 20
    assert used <= names
    for panel in panels:
        assert panel["title"]
        assert panel["description"], panel["title"]
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_exactly_the_metrics_that_the_router_has_are_described() -> None:
    kinds = _metric_kinds()
    rows = {
        row[0].strip("`"): row[1] for row in table_rows(ROOT / "docs" / "router.md") if row[0].startswith("`hpcserve_")
    }
    assert rows == kinds


def test_every_exit_code_is_described() -> None:
    described = {row[0] for row in table_rows(ROOT / "docs" / "serve.md")}
    kinds: list[type[HpcserveError]] = [HpcserveError, *HpcserveError.__subclasses__()]
    assert {str(kind.exit_code) for kind in kinds} <= described


def test_every_room_and_every_front_door_of_the_architecture_exists() -> None:
    rooms = {
        path.stem
        for path in (ROOT / "hpcserve").iterdir()
        if not path.name.startswith("_") and path.suffix in {"", ".py"}
    }
    rows = [row for row in table_rows(ROOT / "docs" / "architecture.md") if len(row) == 3 and row[0] != "room"]
    named = {room for row in rows for room in re.findall(r"`(\w+)`", row[0])}
    assert named == rooms - {"py"}
    for row in rows:
        for room in re.findall(r"`(\w+)`", row[0]):
            front = ROOT / "hpcserve" / room / "__init__.py"
            for name in re.findall(r"`(\w+)`", row[2]):
                assert f'"{name}"' in front.read_text(encoding="utf-8"), f"{room}: {name}"


def test_every_key_of_what_json_prints_is_described() -> None:
    parts = _page("json.md").split("\n## ")[1:]
    described = {re.findall(r"`([\w./]+)`", part)[0]: part for part in parts}
    nouns = {noun.__name__: noun for noun in (Plan, Comparison, Outlook, Job, JobHandle, JobState, Report)}
    assert described.keys() == nouns.keys()
    for name, noun in nouns.items():
        keys = re.findall(r"^\| `(\w+)` \|", described[name], flags=re.MULTILINE)
        assert keys == [field.alias or key for key, field in noun.model_fields.items()]
        assert f"`{noun.model_fields['schema_'].default}`" in described[name].splitlines()[0]
