"""A site file that an import refreshes, and the record of what it learnt before."""

from dataclasses import dataclass
from pathlib import Path

from hpcserve.deploy.places import read_text
from hpcserve.deploy.whole_file import write_whole
from hpcserve.discovery import typed_path
from hpcserve.errors import HpcserveError
from hpcserve.nouns import Learnt
from hpcserve.wire import UnreadableRecordError, decode_record, encode_record

__all__ = ["SiteFile"]

_REMEDY = "name another file with --into"


@dataclass(frozen=True, kw_only=True)
class SiteFile:
    """The file as it was read; `text` is None where there is none yet."""

    path: Path
    text: str | None
    learnt: Learnt

    @classmethod
    def read(cls, path: Path) -> "SiteFile":
        """The file and its record; raises InputError or HpcserveError where one of them cannot be read."""
        # The file itself, not the link to it, is replaced.
        path = typed_path(path).resolve()
        text = read_text(path) if path.exists() else None
        beside = _beside(path)
        empty = Learnt(schema_="hpcserve.learnt/1", values={})
        if not beside.exists():
            return cls(path=path, text=text, learnt=empty)
        try:
            learnt = decode_record(Learnt, beside.read_bytes())
        except UnreadableRecordError as error:
            raise HpcserveError(
                f"{beside}: {error}",
                remedy="remove it: every difference then counts as yours until you --take it",
            ) from None
        # Without the file its record says nothing: what was learnt is learnt anew.
        return cls(path=path, text=text, learnt=empty if text is None else learnt)

    def write(self, text: str, learnt: Learnt) -> None:
        """Write text and record, each whole or not at all; what is the same is not touched.

        Raises HpcserveError where somebody has changed the file since it was read, or where it cannot be written.
        """
        now = read_text(self.path) if self.path.exists() else None
        if now != self.text:
            raise HpcserveError(
                f"{self.path} was changed while the import ran; nothing was written", remedy="import again"
            )
        # The text first: a record that is older than it makes no edit of an admin's look like an import's.
        if text != self.text:
            write_whole(self.path, text.encode(), remedy=_REMEDY)
        if learnt != self.learnt:
            write_whole(_beside(self.path), encode_record(learnt), remedy=_REMEDY)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.learnt.json")
