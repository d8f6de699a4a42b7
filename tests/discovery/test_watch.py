"""What a reader believes: heartbeats on its own clock, readable records of its own user, and nothing else."""

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.discovery import Found, Heart, Watch, announce, withdraw
from hpcserve.nouns import Endpoint, Role
from tests.discovery.faulty import Clock, Faulty


def endpoint(worker_id: str, *, node: str = "n1", generation: str = "7.0-aa", draining: bool = False) -> Endpoint:
    return Endpoint(
        id=worker_id,
        generation=generation,
        role=Role.DECODE,
        url="http://10.1.0.3:20400",
        node=node,
        pid=812,
        model="m",
        engine="sim",
        engine_version="1",
        handoff=None,
        draining=draining,
    )


def watch(job: Path, clock: Clock, files: Faulty | None = None) -> Watch:
    return Watch(job, monotonic=clock.monotonic, unix_time=clock.unix, files=files or Faulty(), timeout_s=60.0)


def heart(job: Path, clock: Clock, *, node: str = "n1", skew_s: float = 0.0) -> Heart:
    return Heart(job, node=node, generation="7.0-aa", unix_time=lambda: clock.unix_s + skew_s)


def ids(found: Watch) -> list[str]:
    return [each.id for each in found.poll().endpoints]


def test_an_announced_worker_is_seen_and_a_withdrawn_one_is_gone_at_once(job: Path) -> None:
    clock = Clock()
    reader = watch(job, clock)
    heart(job, clock).beat()
    assert ids(reader) == []
    announce(job, endpoint("decode-1"))
    announce(job, endpoint("decode-0"))
    assert ids(reader) == ["decode-0", "decode-1"]
    withdraw(job, "decode-1")
    withdraw(job, "decode-1")
    assert ids(reader) == ["decode-0"]


def test_a_new_generation_and_draining_replace_what_was_known(job: Path) -> None:
    clock = Clock()
    reader = watch(job, clock)
    announce(job, endpoint("decode-0", generation="7.0-aa"))
    assert reader.poll().endpoints[0].generation == "7.0-aa"
    announce(job, endpoint("decode-0", generation="7.0-bb", draining=True))
    assert reader.poll().endpoints == (endpoint("decode-0", generation="7.0-bb", draining=True),)


def test_a_directory_that_does_not_exist_yet_holds_no_endpoints(tmp_path: Path) -> None:
    snapshot = watch(tmp_path, Clock()).poll()
    assert snapshot.endpoints == ()
    assert snapshot.warnings == ()


def test_no_name_is_asked_for_before_a_listing_shows_it(tmp_path: Path) -> None:
    """An NFS client remembers "no such file" for up to a minute; a listing does not plant that."""
    files, clock = Faulty(), Clock()
    reader = watch(tmp_path, clock, files)
    reader.poll()
    assert {operation for operation, _ in files.asked} == {"names"}
    assert all(path == tmp_path for _, path in files.asked)
    (tmp_path / "endpoints").mkdir()
    announce(tmp_path, endpoint("decode-0"))
    files.asked.clear()
    assert ids(reader) == ["decode-0"]
    assert [path.name for operation, path in files.asked if operation == "read"] == ["decode-0.json"]


def test_a_write_of_another_host_is_seen_by_the_next_poll_without_any_event(job: Path) -> None:
    clock = Clock()
    reader = watch(job, clock)
    assert ids(reader) == []
    text = endpoint("decode-4").model_dump_json(by_alias=True)
    (job / "endpoints" / "decode-4.json").write_text(text)
    (job / "endpoints" / "decode-4.json").chmod(0o600)
    clock.pass_s(1)
    assert ids(reader) == ["decode-4"]


@pytest.mark.parametrize("skew_s", [-5400.0, -95.0, 0.0, 95.0, 5400.0])
def test_a_node_lives_while_its_count_changes_whatever_its_clock_says(job: Path, skew_s: float) -> None:
    clock = Clock()
    pulse, reader = heart(job, clock, skew_s=skew_s), watch(job, clock)
    announce(job, endpoint("decode-0"))
    warnings: list[str] = []
    for _ in range(60):
        pulse.beat()
        snapshot = reader.poll()
        warnings += snapshot.warnings
        assert [each.id for each in snapshot.endpoints] == ["decode-0"]
        clock.pass_s(5)
    if skew_s:
        assert len(warnings) == 1
        assert "n1" in warnings[0]
        assert ("ahead of" if skew_s > 0 else "behind") in warnings[0]
    else:
        assert warnings == []


@pytest.mark.parametrize("skew_s", [-5400.0, 0.0, 5400.0])
def test_a_node_whose_count_stands_still_is_dropped_after_the_time_out_and_said_once(job: Path, skew_s: float) -> None:
    clock = Clock()
    pulse, reader = heart(job, clock, skew_s=skew_s), watch(job, clock)
    announce(job, endpoint("decode-0"))
    pulse.beat()
    reader.poll()
    clock.pass_s(60)
    assert ids(reader) == ["decode-0"]
    lines: list[str] = []
    for _ in range(100):
        clock.pass_s(1)
        snapshot = reader.poll()
        assert snapshot.endpoints == ()
        lines += snapshot.warnings
    assert len(lines) == 1
    assert "stood still" in lines[0]
    pulse.beat()
    assert ids(reader) == ["decode-0"]


def test_the_wall_clock_of_the_reader_may_jump(job: Path) -> None:
    clock = Clock()
    pulse, reader = heart(job, clock), watch(job, clock)
    announce(job, endpoint("decode-0"))
    pulse.beat()
    reader.poll()
    clock.unix_s += 10_000_000
    clock.now_s += 1
    assert ids(reader) == ["decode-0"]


def test_only_the_silent_node_is_dropped(job: Path) -> None:
    clock = Clock()
    living, silent = heart(job, clock, node="n1"), heart(job, clock, node="n2")
    reader = watch(job, clock)
    announce(job, endpoint("decode-0", node="n1"))
    announce(job, endpoint("decode-1", node="n2"))
    silent.beat()
    for _ in range(14):
        living.beat()
        reader.poll()
        clock.pass_s(5)
    assert ids(reader) == ["decode-0"]


def test_an_agent_that_was_restarted_counts_from_one_again_and_lives(job: Path) -> None:
    clock = Clock()
    reader = watch(job, clock)
    announce(job, endpoint("decode-0"))
    for generation in ("7.0-aa", "7.0-bb", "7.0-cc", "7.0-dd"):
        Heart(job, node="n1", generation=generation, unix_time=clock.unix).beat()
        assert ids(reader) == ["decode-0"]
        clock.pass_s(50)


UNREADABLE = {
    "empty": b"",
    "half": b'{"schema": "hpcserve.endpoint/1", "id": "half", "url": "http://10.1',
    "nul": b"\0" * 512,
    "notobj": b'["half"]',
    "missingkeys": b'{"schema": "hpcserve.endpoint/1", "id": "missingkeys"}',
    "badutf8": b'{"id": "\xe9"}',
    "otherschema": json.dumps({"schema": "hpcserve.node/1", "id": "otherschema"}).encode(),
}


def test_unreadable_records_are_skipped_and_said_once_while_the_others_load(job: Path) -> None:
    clock = Clock()
    pulse, reader = heart(job, clock), watch(job, clock)
    good = endpoint("decode-0")
    announce(job, good)
    whole = good.model_dump_json(by_alias=True).encode()
    for name, data in {**UNREADABLE, "two": whole + whole}.items():
        (job / "endpoints" / f"{name}.json").write_bytes(data)
        (job / "endpoints" / f"{name}.json").chmod(0o600)
    lines: list[str] = []
    for _ in range(200):
        pulse.beat()
        snapshot = reader.poll()
        assert [each.id for each in snapshot.endpoints] == ["decode-0"]
        lines += snapshot.warnings
        clock.pass_s(1)
    assert sorted(line.split(":")[0] for line in lines) == sorted(
        f"endpoints/{name}.json" for name in [*UNREADABLE, "two"]
    )


def test_the_last_good_state_of_a_torn_record_is_kept_until_the_time_out(job: Path) -> None:
    clock = Clock()
    pulse, reader = heart(job, clock), watch(job, clock)
    announce(job, endpoint("decode-0"))
    assert ids(reader) == ["decode-0"]
    (job / "endpoints" / "decode-0.json").write_bytes(b"\0" * 300)
    seen = []
    for _ in range(70):
        clock.pass_s(1)
        pulse.beat()
        seen.append(ids(reader) == ["decode-0"])
    assert seen == [True] * 60 + [False] * 10


@given(st.binary(max_size=400))
def test_no_bytes_in_a_record_can_break_a_poll(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    job = tmp_path_factory.mktemp("job")
    for folder in ("endpoints", "heartbeats"):
        (job / folder).mkdir()
        (job / folder / "n1.json").write_bytes(data)
    assert watch(job, Clock()).poll().endpoints == ()


def test_a_stale_file_handle_polled_for_a_minute_says_one_line_and_hides_nothing_else(job: Path) -> None:
    clock, files = Clock(), Faulty()
    pulse, reader = heart(job, clock), watch(job, clock, files)
    announce(job, endpoint("prefill-0"))
    announce(job, endpoint("decode-0"))
    assert ids(reader) == ["decode-0", "prefill-0"]
    files.fail("read", "decode-0", errno.ESTALE)
    lines: list[str] = []
    for step in range(120):
        if step % 10 == 0:
            pulse.beat()
        clock.pass_s(0.5)
        snapshot = reader.poll()
        lines += snapshot.warnings
        assert "prefill-0" in [each.id for each in snapshot.endpoints]
    assert len(lines) == 1
    assert "Stale file handle" in lines[0]
    files.heal()
    assert ids(reader) == ["decode-0", "prefill-0"]


def test_a_flapping_file_cannot_fill_a_log(job: Path) -> None:
    clock, files = Clock(), Faulty()
    pulse, reader = heart(job, clock), watch(job, clock, files)
    announce(job, endpoint("decode-0"))
    lines: list[str] = []
    for _ in range(120):
        files.fail("read", "decode-0", errno.EIO)
        lines += reader.poll().warnings
        files.heal()
        pulse.beat()
        lines += reader.poll().warnings
        clock.pass_s(0.5)
    assert len(lines) <= 2


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EACCES, errno.EIO, errno.ENOENT])
@pytest.mark.parametrize("folder", ["endpoints", "heartbeats"])
def test_a_listing_that_fails_keeps_everything_as_it_was_until_the_time_out(job: Path, folder: str, error: int) -> None:
    clock, files = Clock(), Faulty()
    pulse, reader = heart(job, clock), watch(job, clock, files)
    announce(job, endpoint("decode-0"))
    pulse.beat()
    assert ids(reader) == ["decode-0"]
    files.fail("names", folder, error)
    clock.pass_s(60)
    assert ids(reader) == ["decode-0"]
    clock.pass_s(1)
    assert ids(reader) == []


def test_records_of_another_user_or_that_anybody_may_write_are_not_believed(job: Path) -> None:
    clock, files = Clock(), Faulty()

    def owner(path: Path, found: Found) -> Found:
        return Found(data=found.data, uid=found.uid + 1, mode=found.mode) if "foreign" in path.name else found

    files.owner = owner
    for worker_id in ("decode-0", "foreign", "open", "closed"):
        announce(job, endpoint(worker_id))
    (job / "endpoints" / "open.json").chmod(0o666)
    files.fail("read", "closed", errno.EACCES)
    snapshot = watch(job, clock, files).poll()
    assert [each.id for each in snapshot.endpoints] == ["decode-0"]
    told = {line.split(":")[0]: line for line in snapshot.warnings}
    assert "belongs to user id" in told["endpoints/foreign.json"]
    assert "anybody" in told["endpoints/open.json"]
    assert "Permission denied" in told["endpoints/closed.json"]


def test_a_record_under_anothers_name_is_refused(job: Path) -> None:
    announce(job, endpoint("decode-0"))
    (job / "endpoints" / "decode-0.json").rename(job / "endpoints" / "decode-9.json")
    snapshot = watch(job, Clock()).poll()
    assert snapshot.endpoints == ()
    assert "decode-9.json" in snapshot.warnings[0]


def test_temporary_names_are_no_records(job: Path) -> None:
    announce(job, endpoint("decode-0"))
    (job / "endpoints" / ".decode-1.json.host.12.0a1b.json").write_text("{}")
    snapshot = watch(job, Clock()).poll()
    assert [each.id for each in snapshot.endpoints] == ["decode-0"]
    assert snapshot.warnings == ()


def test_figures_that_would_hurt_the_file_server_or_the_living_are_refused(job: Path) -> None:
    with pytest.raises(ValueError, match="60"):
        Watch(job, timeout_s=15)
    with pytest.raises(ValueError, match="5"):
        Heart(job, node="n1", generation="g", period_s=1)
