"""Files that are written whole or not at all."""

import os
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcserve.deploy import check_place, write_whole
from hpcserve.errors import HpcserveError
from tests.discovery.faulty import Faulty


@pytest.fixture
def little_room() -> Iterator[None]:
    """No file may become larger than 1,000 bytes: a write fails half-way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("earlier", [b"what was there", None])
def test_what_cannot_be_written_whole_leaves_what_was_there(tmp_path: Path, earlier: bytes | None) -> None:
    path = tmp_path / "picture.svg"
    if earlier is not None:
        path.write_bytes(earlier)
    with pytest.raises(HpcserveError, match=r"picture\.svg cannot be written: .*; elsewhere"):
        write_whole(path, b"x" * 5000, remedy="elsewhere")
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == (
        [] if earlier is None else [(path.name, earlier)]
    )


@pytest.mark.parametrize("operation", ["create", "replace", "sync"])
def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    def interrupted(asked: str, _path: Path) -> None:
        if asked == operation:
            raise KeyboardInterrupt

    monkeypatch.setattr("hpcserve.deploy.whole_file.DISK", Faulty(rules=[interrupted]))
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "picture.svg", b"x", remedy="elsewhere")
    assert [found.name for found in tmp_path.iterdir()] == (["picture.svg"] if operation == "sync" else [])


@pytest.fixture
def set_mask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_what_is_new_has_the_mode_of_any_file_and_what_is_replaced_keeps_its_own(
    tmp_path: Path, set_mask: Callable[[int], int], mask: int, mode: int
) -> None:
    set_mask(mask)
    path = tmp_path / "a.json"
    write_whole(path, b"1", remedy="")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    path.chmod(0o640)
    write_whole(path, b"2", remedy="")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) == (0o640, b"2")
    assert len(list(tmp_path.iterdir())) == 1
    assert set_mask(0o022) == mask


@pytest.mark.parametrize("earlier", [b"1", None])
def test_the_file_that_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path, earlier: bytes | None) -> None:
    (tmp_path / "kept").mkdir()
    target, link = tmp_path / "kept/a.json", tmp_path / "a.json"
    if earlier is not None:
        target.write_bytes(earlier)
    link.symlink_to("kept/a.json")
    check_place(link, remedy="")
    write_whole(link, b"2", remedy="")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"2")
    assert len(list(tmp_path.rglob("*"))) == 3


def test_a_device_is_written_to_and_stays_one() -> None:
    write_whole(Path("/dev/null"), b"gone", remedy="")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(HpcserveError, match="/dev/full cannot be written: No space left on device; elsewhere"):
        write_whole(Path("/dev/full"), b"x", remedy="elsewhere")


@pytest.mark.parametrize("name", ["no/such/file", "folder", "file/below"])
def test_a_place_that_cannot_be_written_is_told_before(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(HpcserveError, match="elsewhere"):
        check_place(tmp_path / name, remedy="elsewhere")
    check_place(tmp_path / "new", remedy="elsewhere")
    check_place(tmp_path / "file", remedy="elsewhere")
    check_place(Path("/dev/null"), remedy="elsewhere")
    with pytest.raises(HpcserveError, match="elsewhere"):
        write_whole(tmp_path / name, b"x", remedy="elsewhere")
    (tmp_path / "link").symlink_to("no/such/file")
    with pytest.raises(HpcserveError, match="no/such is no folder; elsewhere"):
        check_place(tmp_path / "link", remedy="elsewhere")
