"""`Learnt`: what imports wrote into a site file, so that the next one can tell an admin's edit from an old value."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hpcserve.nouns.base import Noun

__all__ = ["Learnt"]


class Learnt(Noun):
    """Lies beside `NAME.yaml` as `NAME.learnt.json`; without it every difference counts as the admin's word."""

    schema_: Annotated[Literal["hpcserve.learnt/1"], Field(alias="schema")]
    values: dict[str, Any]
    """For each key of the site file, `switches[leaf1].hosts`, what the last import learnt."""
