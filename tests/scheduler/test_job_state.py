"""What is said of a job, from its directory and its scheduler's word."""

import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

from hpcserve.cli.status import shown_state
from hpcserve.discovery import write_record
from hpcserve.errors import NotFoundError, UnverifiedError
from hpcserve.nouns import (
    Job,
    JobFailure,
    JobHandle,
    JobPhase,
    JobState,
    PairProof,
    RouterAddress,
    RouterState,
    WorkerState,
)
from hpcserve.scheduler import SchedulerState, find_job, job_state, list_jobs, router_answers
from hpcserve.wire import decode_record
from tests.golden.cases import case

HANDLE = JobHandle(name="sim-1", launcher="slurm", id="7", directory="/j/sim-1", submitted_utc="now")
RUNNING = SchedulerState(word="RUNNING", phase="running", reason="", source="squeue")
PROVED = PairProof(
    prefill="prefill-0",
    prefill_generation="g",
    decode="decode-0",
    decode_generation="g",
    proved=True,
    reason="8 tokens equal",
)


@dataclass
class Says:
    """A scheduler that says one thing."""

    answer: SchedulerState

    def submit(self, job: Job) -> JobHandle:
        raise NotImplementedError

    def state(self, _handle: JobHandle) -> SchedulerState:
        return self.answer

    def cancel(self, handle: JobHandle) -> None:
        raise NotImplementedError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = case("local.sim")
    for name in ("workers", "logs"):
        (tmp_path / name).mkdir()
    for path in ("service.yaml", "plan.asked.json"):
        (tmp_path / path).write_text(found.job.file(path).text)
    return tmp_path


def look(directory: Path, says: SchedulerState = RUNNING, *, answers: bool = True) -> JobState:
    return job_state(directory, HANDLE, launcher=Says(says), answers=lambda _url: answers)


def worker(directory: Path, identity: str, phase: Literal["ready", "failed", "starting"], **more: object) -> None:
    role = identity.partition("-")[0]
    state = WorkerState(id=identity, role=role, node="local1", phase=phase).model_copy(update=more)
    write_record(directory / "workers" / f"{identity}.state.json", state)


def router(directory: Path, *, ready: bool, proofs: tuple[PairProof, ...] = (PROVED,), waiting: str = "") -> None:
    write_record(directory / "router.json", RouterAddress(url="http://n:8000", node="local1", pid=1))
    state = RouterState(
        ready=ready,
        ready_since_utc="now" if ready else None,
        waiting_for=(waiting,) if waiting else (),
        proofs=proofs,
        mismatches=(),
    )
    write_record(directory / "router.state.json", state)


def whole(directory: Path) -> None:
    worker(directory, "prefill-0", "ready")
    worker(directory, "decode-0", "ready")
    router(directory, ready=True)


def test_ready_needs_the_routers_proof_its_answer_and_every_worker(directory: Path) -> None:
    whole(directory)
    state = look(directory)
    assert (state.phase, state.url, state.simulated) == (JobPhase.READY, "http://n:8000", True)


def test_workers_that_say_ready_are_not_enough(directory: Path) -> None:
    worker(directory, "prefill-0", "ready")
    worker(directory, "decode-0", "ready")
    assert look(directory).phase == JobPhase.STARTING
    router(directory, ready=False, proofs=(), waiting="decode-0 is not proved")
    assert (look(directory).phase, look(directory).reason) == (JobPhase.STARTING, "decode-0 is not proved")


def test_a_proof_of_a_router_that_does_not_answer_is_not_enough(directory: Path) -> None:
    whole(directory)
    state = look(directory, answers=False)
    assert (state.phase, state.reason) == (JobPhase.DEGRADED, "the router does not answer")


def test_doubts_about_kv_events_are_shown_and_make_nobody_unready(directory: Path) -> None:
    whole(directory)
    path = directory / "router.state.json"
    doubt = "prefill-0: no KV events come"
    said = decode_record(RouterState, path.read_bytes()).model_copy(update={"kv_doubts": (doubt,)})
    write_record(path, said)
    state = look(directory)
    assert (state.phase, state.kv_doubts) == (JobPhase.READY, (doubt,))
    assert f"KV events: {doubt}" in shown_state(state)


def test_a_job_that_has_ended_is_never_ready(directory: Path) -> None:
    whole(directory)
    ended = SchedulerState(word="TIMEOUT", phase="ended", reason="its time was up", source="squeue")
    state = look(directory, ended)
    assert (state.phase, state.url) == (JobPhase.ENDED, None)
    assert {found.phase for found in state.workers} == {"stopped"}


def test_a_missing_worker_degrades_what_is_served(directory: Path) -> None:
    whole(directory)
    worker(directory, "decode-0", "starting")
    state = look(directory)
    assert (state.phase, state.reason) == (JobPhase.DEGRADED, "decode-0: starting")


def test_a_worker_that_only_the_router_misses_degrades_what_is_served(directory: Path) -> None:
    """Its node was lost: its agent's last word is still `ready`."""
    whole(directory)
    router(directory, ready=True, waiting="prefill-0: does not answer")
    state = look(directory)
    assert (state.phase, state.reason) == (JobPhase.DEGRADED, "prefill-0: does not answer")


@pytest.mark.parametrize(("blocks", "files"), [(0, 1000), (1000, 0)])
def test_a_full_disk_is_named_by_who_looks_as_nothing_there_can(
    directory: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, files: int
) -> None:
    assert look(directory).reason == "prefill-0: waiting, decode-0: waiting"
    full = os.statvfs_result((4096, 4096, 9000, blocks, blocks, 9000, files, files, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    state = look(directory)
    told = f"the disk of {directory} is full, nothing more can be written there"
    assert (state.phase, state.reason) == (JobPhase.STARTING, f"{told}; prefill-0: waiting, decode-0: waiting")
    whole(directory)
    assert (look(directory).phase, look(directory).reason) == (JobPhase.READY, "")
    assert look(directory, answers=False).reason == f"{told}; the router does not answer"


def test_the_jobs_own_failure_comes_before_what_slurm_says(directory: Path) -> None:
    whole(directory)
    write_record(directory / "failed.json", JobFailure(reason="no worker is left", where="decode-0", life="7.0"))
    completed = SchedulerState(word="COMPLETED", phase="ended", reason="", source="squeue")
    for says in (RUNNING, completed):
        state = look(directory, says)
        assert (state.phase, state.reason) == (JobPhase.FAILED, "decode-0: no worker is left")


def test_a_pending_job_says_why_it_waits_and_shows_its_planned_workers(directory: Path) -> None:
    held = SchedulerState(word="PENDING", phase="pending", reason="held by its owner (JobHeldUser)", source="squeue")
    state = look(directory, held)
    assert (state.phase, state.reason) == (JobPhase.PENDING, "held by its owner (JobHeldUser)")
    assert [(found.id, found.phase) for found in state.workers] == [("prefill-0", "waiting"), ("decode-0", "waiting")]


def test_a_step_that_does_not_start_is_the_reason(directory: Path) -> None:
    (directory / "logs" / "slurm.out").write_text(
        "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    )
    assert "another step holds the nodes" in look(directory).reason


def test_a_failed_worker_shows_the_end_of_its_log(directory: Path) -> None:
    worker(directory, "decode-0", "failed", detail="exit 1")
    (directory / "logs" / "decode-0.log").write_text("".join(f"line {number}\n" for number in range(100)))
    state = look(directory)
    failed = state.workers[1]
    assert failed.log_tail[-1] == "line 99"
    assert len(failed.log_tail) == 20


def test_a_scheduler_that_cannot_be_asked_leaves_the_routers_proof_to_decide(directory: Path) -> None:
    unknown = SchedulerState(word="UNKNOWN", phase="unknown", reason="no answer", source="nothing")
    assert (look(directory, unknown).phase, look(directory, unknown).reason) == (JobPhase.UNKNOWN, "no answer")
    whole(directory)
    assert look(directory, unknown).phase == JobPhase.READY
    assert look(directory, unknown, answers=False).phase == JobPhase.UNKNOWN


def test_a_job_whose_directory_was_deleted_is_an_error_and_no_guess(directory: Path) -> None:
    for gone in ("service.yaml", "workers", ""):
        target = directory / gone
        target.unlink() if target.is_file() else shutil.rmtree(target)
        if gone != "workers":  # without it, no agent has said anything yet
            with pytest.raises(UnverifiedError, match="No such file"):
                look(directory)


def test_a_torn_record_is_an_error_and_no_guess(directory: Path) -> None:
    (directory / "router.state.json").write_text('{"schema": "hpc')
    (directory / "router.state.json").chmod(0o600)
    with pytest.raises(UnverifiedError, match=r"router\.state\.json"):
        look(directory)


def test_without_plan_only_what_agents_say_is_shown(directory: Path) -> None:
    worker(directory, "decode-7", "ready")
    assert [found.id for found in look(directory).workers] == ["prefill-0", "decode-0", "decode-7"]


@pytest.fixture
def answering() -> Iterator[tuple[str, list[int]]]:
    """A server whose /health answers the code in the list."""
    code = [200]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code[0] if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", code
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_router_is_asked_over_http(answering: tuple[str, list[int]]) -> None:
    url, code = answering
    assert router_answers(url)
    code[0] = 503
    assert not router_answers(url)
    assert not router_answers("http://127.0.0.1:1")


def test_no_proxy_stands_between(answering: tuple[str, list[int]]) -> None:
    program = "import sys; from hpcserve.scheduler import router_answers; print(router_answers(sys.argv[1]))"
    asked = subprocess.run(
        [sys.executable, "-c", program, answering[0]],
        env={**os.environ, "http_proxy": "http://127.0.0.1:1", "no_proxy": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout == "True\n"


def made(root: Path, name: str, identity: str | None = None) -> Path:
    (root / name).mkdir(parents=True)
    (root / name / "plan.asked.json").write_text("{}")
    if identity is not None:
        handle = HANDLE.model_copy(update={"name": name, "id": identity, "directory": str(root / name)})
        write_record(root / name / "job.json", handle)
    return root / name


def test_jobs_are_found_by_name_id_service_and_directory(tmp_path: Path) -> None:
    near, far = tmp_path / "a", tmp_path / "b"
    first, tenth, other = made(near, "chat-2", "41"), made(near, "chat-10", "42;far"), made(far, "my-chat-1", "43")
    made(near, ".chat-11.tmp")
    roots = (near, far, tmp_path / "none")
    assert find_job("chat-2", roots).directory == first
    assert find_job("42", roots).directory == tenth
    assert find_job("chat", roots).directory == tenth
    assert find_job("my-chat", roots).directory == other
    assert find_job(str(first), ()).directory == first
    assert [job.directory.name for job in list_jobs(roots)] == ["chat-2", "chat-10", "my-chat-1"]
    with pytest.raises(NotFoundError, match="no job `nope`"):
        find_job("nope", roots)
    with pytest.raises(NotFoundError, match="no job directory"):
        find_job(str(tmp_path), ())


def test_the_jobs_of_others_in_a_shared_folder_are_left_out() -> None:
    with tempfile.TemporaryDirectory() as shared:
        root = Path(shared)
        root.chmod(0o755)
        mine, theirs = made(root, "chat-1"), made(root, "chat-2")
        theirs.chmod(0)
        child = os.fork()
        if child == 0:  # as an ordinary user, whom permissions hold for
            if os.getuid() == 0:
                os.chown(mine, 65534, 65534)
                os.chown(mine / "plan.asked.json", 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            try:
                os._exit(0 if [job.directory for job in list_jobs([root, root / "chat-2"])] == [mine] else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        theirs.chmod(0o700)


def test_a_job_without_a_readable_handle_hides_no_other(tmp_path: Path) -> None:
    made(tmp_path, "chat-1")
    torn = made(tmp_path, "chat-2")
    (torn / "job.json").write_text("{")
    (torn / "job.json").chmod(0o600)
    rendered, broken = list_jobs([tmp_path])
    with pytest.raises(NotFoundError, match="rendered and not submitted"):
        rendered.submitted()
    with pytest.raises(NotFoundError, match="cannot be read"):
        broken.submitted()
    assert replace(broken, trouble="").handle is None
