"""Writes `docs/site-reference.md` and the JSON Schema of site files from the nouns.

Run as `python -m tests.docs.site_reference`. What a key means is the text below it in `hpcserve/nouns`; nothing of a
site file is described anywhere else.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import yaml
from pydantic.fields import FieldInfo

from hpcserve.nouns import Network, Noun, Rate, Site
from hpcserve.nouns import base as forms

__all__ = ["PAGE", "SCHEMA", "reference", "schema"]

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "site-reference.md"
SCHEMA = _ROOT / "hpcserve" / "nouns" / "site.schema.json"

_SHARED: dict[type[Noun], str] = {Rate: "RATE", Network: "NETWORK"}

_HEAD = """\
One YAML file a cluster; [site.md](site.md) walks through one. `required` keys must be there: nothing that a machine
decides has a default. Keys that are not listed are mistakes, and every mistake is told with line and column. `hosts`
take Slurm's host lists, `node[01-04,07]`. This page and the JSON Schema for editors (`hpcserve site schema`) are
written from the code."""

_SWITCHES = """\
A leaf has `hosts`, a switch above leaves has `switches`; exactly one of the two. Every node is in one leaf, or in one
for each rail. One leaf alone is enough where all nodes reach one another at full rate."""

_DOMAINS = """\
A domain is hardware; a block is what Slurm was told. Where both are given they need not be the same nodes."""

_RATES = """\
A rate has one of three forms: `effective_gb_per_s`; or `nominal_gb_per_s` with `efficiency`; or `unknown: true`.
GB/s are 1e9 bytes/s, one way and of one port; a figure in MiB/s times 1.048576e-3 is GB/s."""

_SECTIONS = [
    ("The site", ("",), ""),
    ("`node_types`", ("node_types.",), ""),
    ("`nodes` and `partitions`", ("nodes[].", "partitions."), ""),
    ("`switches`", ("switches[].",), _SWITCHES),
    ("`nvlink_domains` and `blocks`", ("nvlink_domains[].", "blocks[]."), _DOMAINS),
    ("Rates and networks", ("RATE.", "NETWORK."), _RATES),
    ("`networks`", ("networks.",), ""),
    ("`slurm`", ("slurm.",), ""),
    ("`transport`, `runtimes`, `paths`", ("transport.", "runtimes.", "paths."), ""),
]

_FORMS = {
    "Name": "name",
    "Text": "text",
    "HostList": "host list",
    "Duration": "`[days-]hours:minutes:seconds`",
    "Subnet": "`10.1.0.0/16`",
    "EnvName": "name",
    "CpuList": "CPUs, `0-23,96-119`",
    "IsoDate": "day, `'2026-05-31'`",
    "SlurmVersion": "version, `'24.05.3'`",
}
"""How a person calls the texts of `hpcserve.nouns.base`."""


def reference() -> str:
    """The whole page."""
    rows = [
        row for noun in (Site, Rate, Network) for row in _rows(noun, f"{_SHARED[noun]}." if noun in _SHARED else "")
    ]
    page = [f"# Every key of a site file\n\n{_HEAD}\n"]
    for title, prefixes, text in _SECTIONS:
        page.append(f"\n## {title}\n\n" + (f"{text}\n\n" if text else ""))
        page.append("| key | type | default | meaning |\n|---|---|---|---|\n")
        page += [
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (f'`{key}`', *rest))} |\n"
            for key, *rest in rows
            if any(key.startswith(prefix) if prefix else "." not in key for prefix in prefixes)
        ]
    return "".join(page)


def schema() -> str:
    """The JSON Schema (2020-12) of a site file, each key with its meaning."""
    made = Site.model_json_schema(by_alias=True)
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
    kinds = {kind.__name__: kind for kind in _nouns(Site)}
    for name, definition in [("Site", made), *made["$defs"].items()]:
        if name in kinds:
            meanings = _meanings(kinds[name])
            for key, described in definition["properties"].items():
                field = next(n for n, f in kinds[name].model_fields.items() if key in (n, f.alias))
                described["description"] = meanings[field]
    return json.dumps(made, indent=1) + "\n"


def _rows(noun: type[Noun], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    hints, meanings = get_type_hints(noun, include_extras=True), _meanings(noun)
    for name, field in noun.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key, _type(hints[name], key, field), _default(field), meanings[name]
        for inner, mark in _nouns_in(field.annotation):
            if inner not in _SHARED:
                yield from _rows(inner, f"{key}{mark}.")


def _meanings(noun: type[Noun]) -> dict[str, str]:
    """What is written below each field of a noun, on one line."""
    body = ast.parse(textwrap.dedent(inspect.getsource(noun))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def _type(hint: Any, key: str, field: FieldInfo) -> str:
    text = _words(hint, key)
    if get_origin(field.annotation) in (tuple, dict) and any(getattr(mark, "min_length", 0) for mark in field.metadata):
        text += ", one or more" if not key.endswith(".gpus") else ", two or more"
    return text


def _words(hint: Any, key: str) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        text = _annotated(hint, parts, key)
    elif origin is Literal:
        text = _either([f"`{word}`" for word in parts])
    elif origin is tuple:
        inner = _words(parts[0], key)
        text = (
            f"list of {'mappings' if inner == 'mapping' else 'whole numbers' if inner.startswith('whole') else inner}"
        )
    elif origin is dict:
        text = f"{_words(parts[0], key)}: {_words(parts[1], key)}"
    elif parts:
        text = _either([*(_words(part, key) for part in parts if part is not type(None)), "null"])
    elif issubclass(hint, Enum):
        text = _either([f"`{member.value}`" for member in hint])
    elif issubclass(hint, Noun):
        text = {Rate: "rate", Network: "network"}.get(hint, "mapping")
    else:
        text = {bool: "true or false", str: "text", int: "whole", float: "number"}[hint]
    return text


def _annotated(hint: Any, parts: tuple[Any, ...], key: str) -> str:
    for name, words in _FORMS.items():
        if getattr(forms, name) == hint:
            return words
    if hint == forms.Figure:
        return "GB/s" if key.endswith("gb_per_s") else "GiB"
    if hint == forms.PositiveInt:
        return "whole, 1 or more"
    if parts[0] is int:
        least = 1 if any(getattr(limit, "gt", None) == 0 for mark in parts[1:] for limit in mark.metadata) else 0
        return f"whole, {least} or more"
    if parts[0] is float:
        return "above 0, at most 1"
    return _words(parts[0], key)


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    plain = list(value) if isinstance(value, tuple) else value.value if isinstance(value, Enum) else value
    written = yaml.safe_dump(plain, default_flow_style=True)
    return f"`{written.removesuffix('...' + chr(10)).strip()}`"


def _nouns_in(annotation: Any, mark: str = "") -> Iterator[tuple[type[Noun], str]]:
    if isinstance(annotation, type) and issubclass(annotation, Noun):
        yield annotation, mark
    inner = {tuple: "[]", dict: ".NAME"}.get(get_origin(annotation), mark)
    for part in get_args(annotation):
        yield from _nouns_in(part, inner)


def _nouns(noun: type[Noun]) -> Iterator[type[Noun]]:
    """A noun and all that stand in it."""
    yield noun
    for field in noun.model_fields.values():
        for inner, _ in _nouns_in(field.annotation):
            yield from _nouns(inner)


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
