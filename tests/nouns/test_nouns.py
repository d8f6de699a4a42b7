import inspect
from typing import Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

import hpcserve.nouns
from hpcserve.nouns import Heartbeat, Noun, Rate, Workload

NOUNS = [kind for _, kind in inspect.getmembers(hpcserve.nouns, inspect.isclass) if issubclass(kind, Noun)]


def test_every_class_of_the_front_door_is_a_noun_or_a_word() -> None:
    assert len(NOUNS) > 40
    assert set(hpcserve.nouns.__all__) >= {kind.__name__ for kind in NOUNS}


def test_a_noun_is_frozen_strict_and_takes_no_unknown_key() -> None:
    rate = Rate(nominal_gb_per_s=50.0, efficiency=0.5, source="measured")
    assert rate.gb_per_s == 25.0
    with pytest.raises(ValidationError, match="frozen"):
        rate.efficiency = 1.0  # type: ignore[misc] # what is tried
    for wrong in ({"nominal_gb_per_s": "50"}, {"typo": 1}, {"efficiency": 1.1}, {"source": "two\nlines"}):
        with pytest.raises(ValidationError):
            Rate.model_validate({**rate.model_dump(), **wrong})


def test_records_have_schemas_of_their_own() -> None:
    schemas = [
        get_args(field.annotation)[0]
        for kind in NOUNS
        for name, field in kind.model_fields.items()
        if name == "schema_" and get_origin(field.annotation) is Literal
    ]
    assert len(schemas) > 10
    assert len(set(schemas)) == len(schemas)
    assert all(schema.startswith("hpcserve.") and schema.endswith("/1") for schema in schemas)


def test_a_record_of_another_version_is_not_read() -> None:
    beat = Heartbeat(node="a", generation="g", count=1, written_unix_s=0.0)
    with pytest.raises(ValidationError, match=r"hpcserve\.heartbeat/1"):
        Heartbeat.model_validate({**beat.model_dump(by_alias=True), "schema": "hpcserve.heartbeat/2"})


@pytest.mark.parametrize("figure", [1e-320, 1e300, 0.0])
def test_figures_of_people_stay_where_arithmetic_does_not_overflow(figure: float) -> None:
    with pytest.raises(ValidationError):
        Workload(input_tokens=1, output_tokens=1, prefill_tokens_per_s=figure)
