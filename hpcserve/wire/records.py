"""JSON records that hpcserve writes, one noun a file, read back by the code that wrote them."""

import json
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from hpcserve.nouns import Noun

__all__ = ["UnreadableRecordError", "decode_record", "encode_record", "encode_yaml"]

N = TypeVar("N", bound=Noun)


class UnreadableRecordError(ValueError):
    """A record that is torn, empty, not UTF-8, not JSON, or not the noun that was expected; says which."""


def encode_record(noun: Noun) -> bytes:
    """A noun as indented JSON with a final newline; keys in the noun's order, so equal nouns give equal bytes."""
    return (noun.model_dump_json(by_alias=True, indent=1) + "\n").encode()


def decode_record(kind: type[N], data: bytes) -> N:
    """Read a noun back; raises UnreadableRecordError with the reason in one line."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise UnreadableRecordError(f"not a {kind.__name__}: {place or 'the text'}: {first['msg']}") from None


def encode_yaml(noun: Noun) -> str:
    """A noun as YAML that `decode_yaml` reads back to an equal noun."""
    plain: Any = json.loads(noun.model_dump_json(by_alias=True, exclude_defaults=False))
    return yaml.dump(plain, Dumper=_Quoting, sort_keys=False, allow_unicode=True, width=120)


class _Quoting(yaml.SafeDumper):
    """Quotes every text value, so that no YAML version can read it as something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - signature of PyYAML
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Quoting.add_representer(str, _represent_text)
