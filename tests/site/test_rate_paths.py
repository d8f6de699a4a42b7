"""The one list of a site's rates has every key of the schema that is a rate."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from hpcserve.draw.site_words import named_rates
from hpcserve.nouns import Noun, Rate, Site
from hpcserve.site import load_site, rates_of
from hpcserve.site.check_rates import rate_paths


def rates_in(kind: type[Noun], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Keys that lead to rates by the schema, without indexes and names."""
    for name, field in kind.model_fields.items():
        for inner in nouns_in(field.annotation):
            here = (*path, field.alias or name)
            if inner is Rate:
                yield here
            else:
                yield from rates_in(inner, here)


def nouns_in(annotation: Any) -> Iterator[type[Noun]]:
    if isinstance(annotation, type) and issubclass(annotation, Noun):
        yield annotation
    for inner in get_args(annotation):
        yield from nouns_in(inner)


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[2] / "site_configs").glob("*.yaml")))
def test_every_rate_of_a_site_is_found_and_has_words_of_its_own(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    site = load_site(text, source=file.name)
    found = list(rates_of(site))
    assert len(found) == len(list(rates_below(site)))
    named = list(named_rates(site))
    assert [rate for _, rate in named] == [rate for _, rate in found]
    assert len({words for words, _ in named}) == len(named)


def rates_below(value: Any) -> Iterator[Rate]:
    """Rates wherever they stand in a noun."""
    if isinstance(value, Rate):
        yield value
    elif isinstance(value, Noun):
        for name in type(value).model_fields:
            yield from rates_below(getattr(value, name))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from rates_below(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from rates_below(inner)


def test_every_rate_of_the_schema_is_listed() -> None:
    raw = {
        "node_types": {"t": {"nics": [{}], "nvlink": [{}]}},
        "switches": [{}],
        "nvlink_domains": [{}],
    }
    listed = [tuple(step for step in path if isinstance(step, str) and step != "t") for path in rate_paths(raw)]
    assert sorted(listed) == sorted(rates_in(Site))
