"""The file SHA256SUMS of a folder, as sha256sum writes and checks it; it lists every other file there."""

import hashlib
from pathlib import Path

from hpcserve.errors import UnverifiedError

__all__ = ["CHECKSUM_FILE", "sha256_of", "verify_checksums", "write_checksums"]

CHECKSUM_FILE = "SHA256SUMS"


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of the files directly in `folder`; it is complete or not there."""
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.name != CHECKSUM_FILE]
    beside = folder / f".{CHECKSUM_FILE}"
    beside.write_text("".join(lines), encoding="utf-8")
    beside.rename(folder / CHECKSUM_FILE)


def verify_checksums(folder: Path) -> None:
    """Read every file that SHA256SUMS of `folder` lists; raises UnverifiedError with all that differ or are missing."""
    wrong = []
    for line in (folder / CHECKSUM_FILE).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        if not path.is_file():
            wrong.append(f"{name or line!r} is missing")
        elif sha256_of(path) != digest:
            wrong.append(f"{name} has another checksum")
    if wrong:
        raise UnverifiedError(f"{folder} is not as it was made: " + ", ".join(wrong))
