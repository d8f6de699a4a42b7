"""Readings on disk: one line each, written the moment it ended, so that what was measured outlives who measured it."""

import os
from datetime import UTC, date, datetime
from pathlib import Path

from hpcserve.measure.errand import READINGS_FOLDER, Reading
from hpcserve.wire import UnreadableRecordError, decode_record, encode_record

__all__ = ["add_reading", "day_of_readings", "read_readings"]


def add_reading(directory: Path, reading: Reading, *, seat: str) -> None:
    """Append one reading to the seat's own file and bring it to stable storage."""
    folder = directory / READINGS_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    line = encode_record(reading).replace(b"\n", b" ") + b"\n"
    descriptor = os.open(folder / f"{seat}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_readings(directory: Path) -> tuple[Reading, ...]:
    """The last word on each flow of each task, one with figures before one without; half a line is no word."""
    best: dict[tuple[int, int, int, int], Reading] = {}
    folder = directory / READINGS_FOLDER
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        for line in path.read_bytes().splitlines():
            try:
                reading = decode_record(Reading, line)
            except UnreadableRecordError:
                continue
            key = (reading.round, reading.task, reading.flow.source, reading.flow.reader)
            if key not in best or not reading.error or best[key].error:
                best[key] = reading
    return tuple(best[key] for key in sorted(best))


def day_of_readings(directory: Path) -> date | None:
    """The day (UTC) on which the last reading was written, by the file system's clock; None where there is none."""
    folder = directory / READINGS_FOLDER
    written_s = [path.stat().st_mtime for path in folder.glob("*.jsonl")] if folder.is_dir() else []
    return datetime.fromtimestamp(max(written_s), UTC).date() if written_s else None
