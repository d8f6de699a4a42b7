"""The keys of a job: its own, and those of tenants in `keys/tenants`, read again when the file changes."""

from pathlib import Path

from hpcserve.errors import ServiceError
from hpcserve.router.keys import KeyRing, read_tenants

__all__ = ["KeyFile"]


class KeyFile:
    """Reads the key files of one job directory."""

    def __init__(self, job: Path, *, secret: bytes) -> None:
        """`secret`: what salts are made from; the same for all lives of a job, so that caches stay warm."""
        self._own = job / "keys" / "api.key"
        self._tenants = job / "keys" / "tenants"
        self._secret = secret
        self._seen: tuple[int, int, int] | None = None
        self._told = ""

    def ring(self) -> KeyRing:
        """The keys as they are now; raises ServiceError where a line is wrong, OSError where a file cannot be read."""
        self._seen = self._stamp()
        tenants: list[tuple[str, str]] = []
        if self._seen is not None:
            try:
                text = self._tenants.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ServiceError(f"{self._tenants} is not UTF-8", remedy="a line is `NAME KEY`") from None
            tenants = read_tenants(text, source=str(self._tenants))
        return KeyRing(self._own.read_bytes().strip(), tenants=tenants, secret=self._secret)

    def changed(self) -> tuple[KeyRing | None, str]:
        """(the keys, words for the log) if the file has changed since it was read; (None, "") if not.

        A file that is wrong or cannot be read changes nothing and is told once.
        """
        try:
            if self._stamp() == self._seen:
                self._told = ""
                return None, ""
            ring = self.ring()
        except (OSError, ServiceError) as error:
            words = f"keys: what was read before stays: {str(error).splitlines()[0]}"
            told, self._told = self._told, words
            return None, "" if words == told else words
        self._told = ""
        return ring, "keys: read anew"

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._tenants.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
