"""The page and the JSON Schema of site files are what the nouns say today."""

import json

from click.testing import CliRunner

from hpcserve.cli import program
from tests.docs.site_reference import PAGE, SCHEMA, reference, schema

AGAIN = "write them again: python -m tests.docs.site_reference"


def test_the_page_is_what_the_nouns_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), AGAIN


def test_the_schema_is_what_the_nouns_say_and_is_what_is_printed() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), AGAIN
    printed = CliRunner().invoke(program, ["site", "schema"])
    assert printed.output == schema()


def test_the_schema_tells_an_editor_what_each_key_means() -> None:
    made = json.loads(schema())
    assert made["properties"]["schema"] == {
        "const": "hpcserve.site/1",
        "description": "Says which form this file has.",
        "title": "Schema",
        "type": "string",
    }
    for name, definition in [("Site", made), *made["$defs"].items()]:
        for key, described in definition.get("properties", {}).items():
            assert described["description"], f"{name}.{key}"
        assert definition.get("additionalProperties", False) is False
