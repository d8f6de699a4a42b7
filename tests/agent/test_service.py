"""Whole agents on two nodes of this host with the simulated engine: what users and faults do to a job."""

import http.server
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from hpcserve.agent import GAVE_UP, NOT_ALONE
from hpcserve.agent.processes import session_members
from hpcserve.discovery import Watch, is_running
from hpcserve.nouns import ClassMeasured, Measurement, Plan, Role
from hpcserve.wire import encode_record
from tests.agent.harness import LocalJob, wait_for


def ask(url: str, key: str, *, tokens: int, timeout_s: float = 30) -> httpx.Response:
    return httpx.post(
        f"{url}/v1/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"model": "tiny", "prompt": "one two three", "max_tokens": tokens, "temperature": 0, "ignore_eos": True},
        timeout=timeout_s,
        trust_env=False,
    )


def engine_key(job: LocalJob) -> str:
    return (job.directory / "keys" / "engine.key").read_text().strip()


def test_workers_are_started_where_the_plan_puts_them_proved_and_announced(job: LocalJob) -> None:
    job.start_all()
    job.await_ready()
    plan = job.record(Plan, "plan.json")
    assert plan is not None
    assert plan.granted
    assert len({worker.node for worker in plan.workers}) == 2
    found = {endpoint.id: endpoint for endpoint in Watch(job.directory).poll().endpoints}
    assert set(found) == {"prefill-0", "decode-0"}
    for worker in plan.workers:
        endpoint, node = found[worker.id], job.node(worker.node)
        assert node is not None
        assert endpoint.node == worker.node
        assert endpoint.url == f"http://{node.control_address}:{worker.port}"
        assert any(first <= (worker.port or 0) < first + count for first, count in node.ports)
        assert endpoint.simulated
        assert endpoint.handoff is not None
        assert endpoint.max_model_len == 2048
        assert ask(endpoint.url, engine_key(job), tokens=3).status_code == 200
        assert ask(endpoint.url, "wrong", tokens=3).status_code == 401
    assert found["decode-0"].role == Role.DECODE
    assert {path.stem for path in (job.directory / "heartbeats").iterdir()} == set(job.nodes)
    ended = job.stop_all()
    assert set(ended.values()) == {0}
    assert job.living() == {}
    assert list((job.directory / "endpoints").iterdir()) == []
    assert {job.phase(worker.id) for worker in plan.workers} == {"stopped"}


def test_a_killed_worker_is_withdrawn_at_once_and_comes_back_as_another(served: LocalJob) -> None:
    before, state = served.endpoint("decode-0"), served.state("decode-0")
    assert before is not None
    assert state is not None
    killed_s = time.monotonic()
    os.kill(before.pid, signal.SIGKILL)
    wait_for("the endpoint's withdrawal", lambda: served.endpoint("decode-0") != before, within_s=2)
    after = served.new_generation("decode-0", before.generation)
    assert time.monotonic() - killed_s < 20
    assert after.url == before.url
    assert after.pid != before.pid
    served.await_ready()
    again = served.state("decode-0")
    assert again is not None
    assert again.restarts == state.restarts + 1
    assert ask(after.url, engine_key(served), tokens=3).status_code == 200


def test_workers_outlive_their_killed_agent_and_are_adopted_by_the_next(served: LocalJob) -> None:
    head, other = served.nodes
    plan, decided = served.record(Plan, "plan.json"), (served.directory / "plan.json").stat().st_mtime_ns
    assert plan is not None
    before = {worker.id: served.endpoint(worker.id) for worker in plan.workers}
    router = wait_for("the router's process", lambda: served.process("router"))
    blocks = {name: served.node(name) for name in served.nodes}
    for node in (other, head):
        served.kill_agent(node)
    time.sleep(0.5)
    for endpoint in before.values():
        assert endpoint is not None
        assert ask(endpoint.url, engine_key(served), tokens=3).status_code == 200
    served.start_all()
    wait_for("both reports", lambda: all(served.node(name) != blocks[name] for name in served.nodes))
    for name in served.nodes:
        again, first = served.node(name), blocks[name]
        assert again is not None
        assert first is not None
        assert again.ports == first.ports

    def adopted() -> bool:
        logs = "".join(path.read_text() for path in (served.directory / "logs").glob("agent.*.log"))
        return all(f"{name}: adopted" in logs for name in before)

    wait_for("the workers' adoption", adopted)
    time.sleep(1.5)
    served.await_ready()
    assert {worker.id: served.endpoint(worker.id) for worker in plan.workers} == before
    assert served.process("router") == router
    assert (served.directory / "plan.json").stat().st_mtime_ns == decided
    decode = before["decode-0"]
    assert decode is not None
    os.kill(decode.pid, signal.SIGKILL)  # an adopted worker's end is seen as well
    assert served.new_generation("decode-0", decode.generation).url == decode.url


def test_a_worker_that_died_while_no_agent_looked_is_started_again(served: LocalJob) -> None:
    before = served.endpoint("decode-0")
    assert before is not None
    served.kill_agent(before.node)
    os.kill(before.pid, signal.SIGKILL)
    served.start(before.node)
    assert served.new_generation("decode-0", before.generation).pid != before.pid


class Impostor(http.server.BaseHTTPRequestHandler):
    """Says that it is healthy, whatever it is asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


def test_anothers_health_is_not_the_workers_and_what_a_dead_worker_left_is_ended(served: LocalJob) -> None:
    before = served.endpoint("decode-0")
    assert before is not None
    served.kill_agent(before.node)
    os.kill(before.pid, signal.SIGKILL)
    script = served.directory / "workers" / "decode-0.sh"
    kept = script.read_text()
    script.write_text("#!/bin/bash\nsleep 600 &\nexec sleep 601\n")
    served.start(before.node)
    wait_for("another start", lambda: served.endpoint("decode-0") is None and served.phase("decode-0") == "starting")
    host, port = before.url.removeprefix("http://").split(":")
    with http.server.ThreadingHTTPServer((host, int(port)), Impostor) as impostor:
        threading.Thread(target=impostor.serve_forever).start()

        def refused() -> bool:
            state = served.state("decode-0")
            return state is not None and "not from this worker" in state.detail

        wait_for("its refusal", refused)
        impostor.shutdown()

    wait_for("a start after it", lambda: served.phase("decode-0") == "starting")
    record = served.process("decode-0")
    assert record is not None
    wait_for("its child", lambda: len(session_members(record.pid)) == 2)
    served.kill_agent(before.node)
    os.kill(record.pid, signal.SIGKILL)
    assert wait_for("its end", lambda: len(session_members(record.pid)) == 1)
    script.write_text(kept)
    served.start(before.node)
    assert served.new_generation("decode-0", before.generation).url == before.url
    assert session_members(record.pid) == ()


def test_the_router_comes_back_on_the_same_port_and_meanwhile_clients_wait(served: LocalJob) -> None:
    plan = served.record(Plan, "plan.json")
    assert plan is not None
    node = served.node(plan.router.node)
    assert node is not None
    health = f"http://{node.control_address}:{plan.router.port}/health"

    def answers() -> bool | None:
        try:
            return httpx.get(health, timeout=2, trust_env=False).status_code in {200, 503} or None
        except httpx.TransportError:
            return None

    seen: set[int] = set()
    for _ in range(3):
        wait_for("a new router", lambda: (found := served.process("router")) is not None and found.pid not in seen)
        wait_for("its answer", answers)
        router = served.process("router")
        assert router is not None
        seen.add(router.pid)
        if len(seen) < 3:
            os.kill(router.pid, signal.SIGKILL)
        if len(seen) == 2:  # started by the agent that runs now, which keeps its socket open: nobody is refused
            assert httpx.get(health, timeout=60, trust_env=False).status_code in {200, 503}


def test_the_plan_of_the_job_follows_the_measurement_that_it_was_planned_with(
    tmp_path: Path, make_job: Callable[..., LocalJob]
) -> None:
    """The site says 0.2275 GB/s of this path."""
    half = ClassMeasured(class_="same leaf: slots.lo to slots.lo", links=(), median=0.1, min=0.1, max=0.1, n=2)
    measurement = tmp_path / "measured.json"
    measurement.write_bytes(
        encode_record(
            Measurement(
                schema_="hpcserve.measurement/1", site="local", day="2026-05-31", tool="a test", classes=(half,)
            )
        )
    )
    job = make_job(measured=measurement)
    asked = job.record(Plan, "plan.asked.json")
    assert asked is not None
    assert [path.gb_per_s for path in asked.paths] == [0.1]
    job.start_all()
    granted = wait_for("the plan", lambda: job.record(Plan, "plan.json"))
    assert granted.paths == asked.paths
    assert "measured on 2026-05-31" in granted.paths[0].source


def test_a_draining_worker_says_so_and_finishes_what_it_began(make_job: Callable[..., LocalJob]) -> None:
    job = make_job(args=("--sim-decode-ms-per-token", "40"))
    job.start_all()
    job.await_ready()
    endpoint = job.endpoint("decode-0")
    assert endpoint is not None
    got: list[httpx.Response] = []
    request = threading.Thread(target=lambda: got.append(ask(endpoint.url, engine_key(job), tokens=150)))
    request.start()
    time.sleep(1)
    for agent in job.agents.values():
        agent.send_signal(signal.SIGTERM)
    wait_for("draining", lambda: (found := job.endpoint("decode-0")) is not None and found.draining, within_s=5)
    request.join()
    assert got[0].status_code == 200
    assert got[0].json()["usage"]["completion_tokens"] == 150
    assert set(job.stop_all().values()) == {0}
    assert job.living() == {}


def test_a_worker_that_cannot_start_fails_with_its_last_words_and_the_job_gives_up(
    make_job: Callable[..., LocalJob],
) -> None:
    job = make_job(args=("--sim-no-such-thing", "1"))
    job.start_all()
    failure = wait_for("failed.json", job.failure, within_s=90)
    assert "every worker failed" in failure.reason
    assert {agent.wait(30) for agent in job.agents.values()} == {GAVE_UP}
    job.agents.clear()
    state = job.state("decode-0")
    assert state is not None
    assert state.phase == "failed"
    assert any("--sim-no-such-thing" in line for line in state.log_tail)
    assert job.living() == {}


def test_workers_that_never_get_healthy_are_given_up_after_two_waits(job: LocalJob) -> None:
    for node in job.nodes:
        job.start(node, pace="start_s=0.01, terminate_s=0.5")
    failure = wait_for("failed.json", job.failure, within_s=60)
    assert "it was not healthy" in failure.reason
    assert {agent.wait(30) for agent in job.agents.values()} == {GAVE_UP}
    job.agents.clear()
    state = job.state("decode-0")
    assert state is not None
    assert (state.phase, state.restarts) == ("failed", 2)
    assert job.living() == {}


def test_a_signal_to_every_process_at_once_as_scancel_gives_it_ends_all_and_starts_nothing(job: LocalJob) -> None:
    job.start_all()
    job.await_ready()
    wait_for("the router's address", (job.directory / "router.json").exists)
    for pid in sorted(job.living(), reverse=True):  # workers and router before their agents
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.02)
    assert {agent.wait(40) for agent in job.agents.values()} == {0}
    job.agents.clear()
    assert job.living() == {}
    assert {job.phase("prefill-0"), job.phase("decode-0")} == {"stopped"}
    for node in job.nodes:
        assert "starting it again" not in (job.directory / "logs" / f"agent.{node}.log").read_text()


def test_stop_json_ends_the_agents_of_its_life_and_no_others(job: LocalJob) -> None:
    job.start_all()
    job.await_ready()
    stop = job.directory / "stop.json"
    for life in ("local.1", "local.0"):
        stop.with_suffix(".new").write_text(f'{{"schema": "hpcserve.stop/1", "life": "{life}"}}')
        stop.with_suffix(".new").rename(stop)
        if life == "local.1":
            time.sleep(1.0)  # five looks
            assert all(agent.poll() is None for agent in job.agents.values())
    assert {agent.wait(20) for agent in job.agents.values()} == {0}
    job.agents.clear()
    assert job.living() == {}


def test_a_stop_before_all_nodes_have_reported_ends_at_once(job: LocalJob) -> None:
    head = job.nodes[0]
    job.start(head)
    wait_for("the head's report", lambda: job.node(head))
    assert job.stop_all(within_s=10) == {head: 0}
    assert job.living() == {}


def test_two_services_on_one_host_share_neither_port_nor_file(make_job: Callable[..., LocalJob]) -> None:
    jobs = [make_job(name="one"), make_job(name="two")]
    for job in jobs:
        job.start_all()
    ports: list[int] = []
    for job in jobs:
        job.await_ready()
        for name in job.nodes:
            node = job.node(name)
            assert node is not None
            ports += [port for first, count in node.ports for port in range(first, first + count)]
    assert len(set(ports)) == len(ports)
    first, second = (job.endpoint("decode-0") for job in jobs)
    assert first is not None
    assert second is not None
    assert ask(first.url, engine_key(jobs[1]), tokens=1).status_code == 401
    assert ask(second.url, engine_key(jobs[1]), tokens=1).status_code == 200
    assert set(jobs[0].stop_all().values()) == {0}
    assert ask(second.url, engine_key(jobs[1]), tokens=1).status_code == 200
    assert set(jobs[1].stop_all().values()) == {0}
    assert [job.living() for job in jobs] == [{}, {}]


def test_a_requeued_job_ends_and_ignores_what_its_first_life_left(job: LocalJob) -> None:
    first_life = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NODELIST": ",".join(job.nodes)}
    job.start_all(**first_life)
    job.await_ready()
    old = {name: job.process(name) for name in ("prefill-0", "decode-0")}
    for node in job.nodes:
        job.kill_agent(node)
    job.start_all(**first_life, SLURM_RESTART_COUNT="1")
    for name, record in old.items():
        assert record is not None
        endpoint = job.new_generation(name, record.generation)
        assert endpoint.generation.startswith("4242.1-")
        assert not is_running(record.pid, record.start_ticks)
    assert all(node is not None and node.generation.startswith("4242.1-") for node in map(job.node, job.nodes))
    assert (job.directory / "logs" / "decode-0.log").read_text().count("\n") > 0
    assert set(job.stop_all().values()) == {0}
    assert job.living() == {}


def test_an_agent_that_is_gone_for_good_leaves_nothing_that_cannot_be_ended(job: LocalJob) -> None:
    job.start_all()
    job.await_ready()
    for node in job.nodes:
        job.kill_agent(node)
    assert job.living()
    for node in job.nodes:
        job.start(node)  # agent.sh would; told to stop at once, perhaps before it has adopted anything
    assert set(job.stop_all().values()) <= {0, -signal.SIGTERM}
    job.end_leftovers()
    assert job.living() == {}


def test_an_agent_that_is_killed_again_and_again_never_has_two_of_a_worker(job: LocalJob) -> None:
    chance = random.Random(7)  # noqa: S311 - moments to kill at
    head, other = job.nodes
    job.start(head)
    for _ in range(10):
        job.start(other)
        time.sleep(0.6 + chance.random())
        job.kill_agent(other)
    job.start(other)
    last = job.agents[other].pid  # until it has reported, a signal may still end it without a word
    wait_for("its report", lambda: (node := job.node(other)) is not None and node.agent_pid == last)
    job.await_ready()
    engines = [command for command in job.living().values() if "hpcserve.simengine serve" in command]
    assert len(engines) == 2
    endpoint = job.endpoint("decode-0")
    assert endpoint is not None
    assert ask(endpoint.url, engine_key(job), tokens=3).status_code == 200
    assert set(job.stop_all().values()) == {0}
    assert job.living() == {}


def test_a_second_agent_of_a_node_touches_nothing(served: LocalJob) -> None:
    head = served.nodes[0]
    names = ("prefill-0", "decode-0", "router")
    wait_for("all processes", lambda: all(served.process(name) for name in names))
    before = {name: served.process(name) for name in names}
    first = served.agents.pop(head)
    served.start(head)
    code = served.agents.pop(head).wait(20)
    served.agents[head] = first
    assert code == NOT_ALONE
    served.end_leftovers(code=NOT_ALONE)
    assert {name: served.process(name) for name in before} == before
    assert all(record is not None and is_running(record.pid, record.start_ticks) for record in before.values())
    assert first.poll() is None


def test_a_job_whose_directory_was_deleted_ends(job: LocalJob) -> None:
    for node in job.nodes:
        job.start(node, pace="gone_s=1.0")
    job.await_ready()
    job.directory.rename(job.directory.with_name("elsewhere"))
    assert {agent.wait(30) for agent in job.agents.values()} == {0}
    job.agents.clear()
    assert job.living() == {}


def test_a_worker_that_hangs_is_replaced(job: LocalJob) -> None:
    head, other = job.nodes
    job.start(head)
    job.start(other, pace="hang_s=2.0, health_s=0.3, terminate_s=1.0")
    job.await_ready()
    before = job.endpoint("decode-0")
    assert before is not None
    assert before.node == other
    os.kill(before.pid, signal.SIGSTOP)
    after = job.new_generation("decode-0", before.generation)
    assert ask(after.url, engine_key(job), tokens=3).status_code == 200
    state = job.state("decode-0")
    assert state is not None
    assert state.restarts == 1


def test_a_worker_whose_port_was_taken_waits_until_it_is_free(job: LocalJob) -> None:
    job.start_all()
    job.await_ready()
    before = job.endpoint("decode-0")
    assert before is not None
    job.kill_agent(before.node)
    os.kill(before.pid, signal.SIGKILL)
    host, port = before.url.removeprefix("http://").split(":")

    def squatter() -> socket.socket | None:
        try:
            return socket.create_server((host, int(port)))
        except OSError:
            return None

    with wait_for("the port", squatter):
        job.start(before.node)

        def held() -> bool:
            state = job.state("decode-0")
            return state is not None and state.phase == "restarting" and f"port {port} is held" in state.detail

        wait_for("its complaint", held)
    assert job.new_generation("decode-0", before.generation).url == before.url


@pytest.mark.parametrize("node", ["local1", "local2"])
def test_a_node_whose_engine_does_not_answer_ends_the_job_with_the_reason(job: LocalJob, node: str) -> None:
    script = job.directory / "runtimes" / "hpcserve.sh"
    script.write_text("echo module sim/1 is not known here >&2\nexit 1\n")
    job.start(node)
    failure = wait_for("failed.json", job.failure)
    assert failure.where == f"agent of {node}"
    assert "module sim/1 is not known here" in failure.reason
    (other,) = set(job.nodes) - {node}
    job.start(other)
    assert {agent.wait(20) for agent in job.agents.values()} == {GAVE_UP}
    job.agents.clear()
    again = job.failure()
    assert again == failure
