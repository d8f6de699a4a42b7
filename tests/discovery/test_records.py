"""Records are whole or absent; leadership is one's; waiting lists; clearing does not insist."""

import asyncio
import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from hpcserve.discovery import (
    Leader,
    await_records,
    claim_leadership,
    is_running,
    read_dir_record,
    read_records,
    remove_tree,
    start_ticks,
    write_record,
)
from hpcserve.errors import ServiceError, TimeoutExpiredError
from hpcserve.nouns import Heartbeat
from hpcserve.wire import UnreadableRecordError
from tests.discovery.faulty import Clock, Faulty


def contents(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def beat(count: int, *, node: str = "n1", generation: str = "g") -> Heartbeat:
    return Heartbeat(node=node, generation=generation, count=count, written_unix_s=1.0)


def leader(node: str = "n1", pid: int | None = None, job: str = "91") -> Leader:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return Leader(node=node, pid=os.getpid() if pid is None else pid, start_ticks=ticks, job=job)


def test_two_hosts_with_one_pid_never_share_a_temporary_name(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All writers here have the same host and pid: the random part alone must keep them apart."""
    files = Faulty()
    for _ in range(50):
        write_record(job / "nodes" / "n1.json", beat(1), files=files)
    monkeypatch.setattr("socket.gethostname", lambda: "otherhost")
    write_record(job / "nodes" / "n1.json", beat(1), files=files)
    names = [path.name for operation, path in files.asked if operation == "create"]
    assert len(set(names)) == 51
    assert all(str(os.getpid()) in name and name.startswith(".n1.json.") for name in names)
    assert "otherhost" in names[-1]
    assert contents(job / "nodes") == ["n1.json"]


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EEXIST])
def test_a_rename_that_lost_its_source_is_done_again_once(job: Path, error: int) -> None:
    files = Faulty()
    files.fail("replace", "n1.json", error, times=1)
    write_record(job / "nodes" / "n1.json", beat(3), files=files)
    assert read_dir_record(job / "nodes", "n1.json", Heartbeat) == beat(3)
    assert contents(job / "nodes") == ["n1.json"]
    files.fail("replace", "n1.json", error, times=2)
    with pytest.raises(OSError, match=os.strerror(error)):
        write_record(job / "nodes" / "n1.json", beat(4), files=files)
    assert read_dir_record(job / "nodes", "n1.json", Heartbeat) == beat(3)
    assert contents(job / "nodes") == ["n1.json"]


@pytest.mark.parametrize(("operation", "error"), [("create", errno.ENOSPC), ("replace", errno.EDQUOT)])
def test_a_full_disk_leaves_the_old_record_and_nothing_else(job: Path, operation: str, error: int) -> None:
    write_record(job / "nodes" / "n1.json", beat(1))
    files = Faulty()
    files.fail(operation, "n1.json", error)
    with pytest.raises(OSError, match=os.strerror(error)):
        write_record(job / "nodes" / "n1.json", beat(2), files=files)
    assert read_dir_record(job / "nodes", "n1.json", Heartbeat) == beat(1)
    assert contents(job / "nodes") == ["n1.json"]


def test_ctrl_c_leaves_the_old_record_and_nothing_else(job: Path) -> None:
    def interrupted(asked: str, _path: Path) -> None:
        if asked == "replace":
            raise KeyboardInterrupt

    path = job / "nodes" / "n1.json"
    write_record(path, beat(1))
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_record(path, beat(2), files=Faulty(rules=[interrupted]))
    assert path.read_bytes() == before
    assert contents(job / "nodes") == ["n1.json"]


def test_a_record_is_brought_to_disk_before_it_is_shown_and_its_name_after(job: Path) -> None:
    files = Faulty()
    write_record(job / "nodes" / "n1.json", beat(1), files=files)
    assert [operation for operation, _ in files.asked] == ["create", "replace", "sync"]


def test_a_record_is_its_owners_alone(job: Path) -> None:
    write_record(job / "nodes" / "n1.json", beat(1))
    assert (job / "nodes" / "n1.json").stat().st_mode & 0o777 == 0o600


def test_a_reader_never_sees_a_part_of_a_record(job: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            write_record(job / "nodes" / "n1.json", beat(count, generation="g" * (1 + count % 4000)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        last = 0
        for _ in range(400):
            listing = read_records(job, "nodes", Heartbeat)
            assert listing.unreadable == {}
            for record in listing.records.values():
                assert record.count >= last
                last = record.count
    finally:
        stop.set()
        writer.join()


def test_nothing_in_discovery_takes_a_lock() -> None:
    package = Path(read_records.__code__.co_filename).parent
    for module in package.glob("*.py"):
        assert "fcntl" not in module.read_text()
        assert ".exists(" not in module.read_text()


def test_a_second_leader_is_refused_with_the_first_ones_host(job: Path) -> None:
    path = job / "leader.json"
    claim_leadership(path, leader("n1"))
    claim_leadership(path, leader("n1"))
    with pytest.raises(ServiceError, match="n1"):
        claim_leadership(path, leader("n2"))
    with pytest.raises(ServiceError, match="n1"):
        claim_leadership(path, leader("n1", pid=os.getppid()))


def test_of_many_that_claim_at_once_exactly_one_leads(job: Path) -> None:
    path, won, lost = job / "leader.json", [], []
    barrier = threading.Barrier(16)

    def claim(number: int) -> None:
        barrier.wait()
        try:
            claim_leadership(path, leader(f"n{number}"))
        except ServiceError:
            lost.append(number)
        else:
            won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 15


def test_a_restart_on_the_same_node_takes_over_from_the_dead_and_only_there(job: Path) -> None:
    path = job / "leader.json"
    claim_leadership(path, leader("n1"))
    with pytest.raises(ServiceError, match="n1"):
        claim_leadership(path, leader("n2"), running=lambda _pid, _ticks: False)
    claim_leadership(path, leader("n1", pid=77), running=lambda _pid, _ticks: False)
    assert read_dir_record(job, "leader.json", Leader) == leader("n1", pid=77)


def test_a_torn_leader_file_is_refused_by_name(job: Path) -> None:
    (job / "leader.json").write_text("{")
    with pytest.raises(ServiceError, match=r"leader\.json"):
        claim_leadership(job / "leader.json", leader())


def test_a_record_is_on_stable_storage_before_it_has_its_name(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        done.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append("name")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_record(job / "nodes" / "n1.json", beat(1))
    assert done == ["file", "name", "directory"]


def test_a_leader_that_was_killed_while_it_claimed_is_replaced_and_a_slow_one_is_not(job: Path) -> None:
    path = job / "leader.json"
    path.touch()
    claim_leadership(path, leader("n1"), sleep=lambda _: None)
    assert read_dir_record(job, "leader.json", Leader) == leader("n1")
    path.write_bytes(b"")
    with pytest.raises(ServiceError, match="n2"):
        claim_leadership(path, leader("n1"), sleep=lambda _: write_record(path, leader("n2")))


def test_a_pid_that_is_used_again_is_not_the_same_process() -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    assert is_running(os.getpid(), ticks)
    assert not is_running(os.getpid(), ticks - 1)
    assert start_ticks(2**22 - 1) is None


def wait(job: Path, clock: Clock, names: list[str], files: Faulty, *, deadline_s: float = 90) -> dict[str, Heartbeat]:
    async def sleep(seconds: float) -> None:
        clock.pass_s(seconds)

    return asyncio.run(
        await_records(
            job, "nodes", names, Heartbeat, deadline_s=deadline_s, files=files, monotonic=clock.monotonic, sleep=sleep
        )
    )


def test_waiting_outlasts_a_listing_that_is_a_minute_old_and_probes_no_name(job: Path) -> None:
    clock, files = Clock(), Faulty()
    write_record(job / "nodes" / "n1.json", beat(1))
    start_s = clock.now_s

    class Late(Faulty):
        def names(self, directory: Path) -> list[str]:
            shown = super().names(directory)
            return [name for name in shown if name != "n1.json" or clock.now_s - start_s > 61]

    files = Late()
    assert wait(job, clock, ["n1"], files) == {"n1": beat(1)}
    reads = [path for operation, path in files.asked if operation == "read"]
    assert len(reads) == 1


def test_waiting_in_vain_names_what_is_missing_and_what_cannot_be_read(job: Path) -> None:
    clock = Clock()
    write_record(job / "nodes" / "n1.json", beat(1))
    (job / "nodes" / "n3.json").write_bytes(b"\0\0")
    with pytest.raises(TimeoutExpiredError) as caught:
        wait(job, clock, ["n1", "n2", "n3"], Faulty())
    assert "n2" in str(caught.value)
    assert "n3 (not a Heartbeat" in str(caught.value)
    assert "n1" not in str(caught.value)


def test_waiting_survives_a_listing_that_fails_for_a_while(job: Path) -> None:
    clock, files = Clock(), Faulty()
    write_record(job / "nodes" / "n1.json", beat(1))
    files.fail("names", "nodes", errno.ESTALE, times=40)
    assert wait(job, clock, ["n1"], files) == {"n1": beat(1)}


def test_a_wait_that_a_cache_could_outlast_is_refused(job: Path) -> None:
    with pytest.raises(ValueError, match="60"):
        wait(job, Clock(), ["n1"], Faulty(), deadline_s=30)


def test_a_record_that_is_listed_and_unreadable_says_why(job: Path) -> None:
    assert read_dir_record(job / "nodes", "n1.json", Heartbeat) is None
    write_record(job / "nodes" / "n1.json", beat(1))
    files = Faulty()
    files.fail("read", "n1.json", errno.EACCES)
    with pytest.raises(UnreadableRecordError, match="Permission denied"):
        read_dir_record(job / "nodes", "n1.json", Heartbeat, files=files)


def test_clearing_leaves_what_a_process_holds_open_and_ends(job: Path) -> None:
    (job / "endpoints" / ".nfs00a1").write_text("held")
    (job / "endpoints" / "decode-0.json").write_text("{}")
    files = Faulty()
    files.fail("unlink", ".nfs00a1", errno.EBUSY)
    pauses: list[float] = []
    left = remove_tree(job, files=files, sleep=pauses.append)
    assert len(pauses) == 2
    assert sorted(path.name for path in job.rglob("*")) == [".nfs00a1", "endpoints"]
    assert any(".nfs00a1" in line and "busy" in line for line in left)
    assert any("not empty" in line for line in left)
    files.heal()
    assert remove_tree(job, files=files, sleep=pauses.append) == ()
    assert not job.exists()


def test_clearing_removes_links_and_not_what_they_lead_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "model").write_text("weights")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(kept)
    assert remove_tree(tree) == ()
    assert (kept / "model").read_text() == "weights"
    assert remove_tree(tree) == ()
