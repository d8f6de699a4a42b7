"""How far an engine installation came, and of what: the file hpcserve-engine.json in its folder, replaced whole."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hpcserve.errors import HpcserveError

__all__ = ["STAMP_NAME", "Stamp", "read_stamp", "write_stamp"]

STAMP_NAME = "hpcserve-engine.json"
_SCHEMA = "hpcserve.engine-environment/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """State of an installation, digests of what it is made from, and the versions found in it once it is complete."""

    state: Literal["installing", "complete"]
    lock_sha256: str
    distributions_sha256: str
    vllm_version: str = ""
    nixl_version: str = ""

    def made_from(self, other: "Stamp") -> bool:
        """Whether both installations have the same packages and the same distributions of ours."""
        return (self.lock_sha256, self.distributions_sha256) == (other.lock_sha256, other.distributions_sha256)


def read_stamp(prefix: Path) -> Stamp | None:
    """The stamp of `prefix`, None where there is none; raises HpcserveError where a file of its name is no stamp."""
    path = prefix / STAMP_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    stamp = _parse(text)
    if stamp is None:
        raise HpcserveError(
            f"{path} is not a stamp that this hpcserve can read ({_SCHEMA})", remedy=f"remove {prefix}, then run again"
        )
    return stamp


def _parse(text: str) -> Stamp | None:
    """The stamp that `text` holds, None where it holds none of this schema."""
    try:
        content = json.loads(text)
        return Stamp(**content) if content.pop("schema") == _SCHEMA else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def write_stamp(prefix: Path, stamp: Stamp) -> None:
    """Put `stamp` in place of the one in `prefix`, if any."""
    beside = prefix / f"{STAMP_NAME}.new"
    beside.write_text(json.dumps({"schema": _SCHEMA} | asdict(stamp), indent=2) + "\n", encoding="utf-8")
    beside.rename(prefix / STAMP_NAME)
