"""The end of a log, as a person is shown it."""

from pathlib import Path

import pytest

from hpcserve.discovery import log_tail


def test_the_end_of_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none") == ()
    assert log_tail(tmp_path) == ()


def test_the_last_lines_come_whole_whatever_bytes_stand_in_them(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_bytes(b"\xff\xfe\n\n\x1b[31mred\x1b[0m\x07\tend\nlast")
    assert log_tail(path, 2) == ("[31mred[0m\tend", "last")
    assert log_tail(path, 1) == ("last",)
    assert log_tail(path, 0) == ()
    assert log_tail(path, 9, blank=True)[1] == ""
    assert log_tail(path, 9, from_bytes=path.stat().st_size - 4) == ("last",)


@pytest.mark.parametrize("wanted", [1, 20, 3000])
def test_as_many_lines_as_were_asked_for_come_of_a_long_log(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "long.log"
    lines = [f"{number} {'x' * 300}" for number in range(4000)]
    path.write_text("\n".join(lines) + "\n")
    assert log_tail(path, wanted) == tuple(lines[-wanted:])


def test_a_log_of_one_endless_line_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "bar.log"
    with path.open("wb") as file:
        file.truncate(1 << 33)
        file.seek(0, 2)
        file.write(b"100 %")
    (line,) = log_tail(path, 1)
    assert line == "100 %"
