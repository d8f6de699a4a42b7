"""A job directory for our router before the fake engines, with everything proved already."""

import threading
from collections.abc import Sequence
from pathlib import Path

from benchmarks.router.machine import (
    DECODE_PORTS,
    ENGINE_KEY,
    KEY,
    PLAIN_PORTS,
    PREFILL_PORTS,
    TELLING_DECODE_PORTS,
    TELLING_PREFILL_PORTS,
)
from benchmarks.router.teller import BLOCK_TOKENS
from hpcserve.discovery import Heart, write_record
from hpcserve.nouns import Endpoint, PairProof, Plan, Role, RouterSettings, RouterState, Service
from hpcserve.wire import encode_record, encode_yaml
from tests import synthetic

__all__ = ["beat", "make_exact_job", "make_job"]

_NODE = "node01"


def make_job(directory: Path, *, disaggregated: bool) -> None:
    """Two prefill and two decode workers with a path of its own cost for each pair; or two aggregated workers."""
    ports = (
        [(Role.PREFILL, PREFILL_PORTS), (Role.DECODE, DECODE_PORTS)]
        if disaggregated
        else [(Role.AGGREGATED, PLAIN_PORTS)]
    )
    endpoints = [_endpoint(role, number, port) for role, each in ports for number, port in enumerate(each)]
    _write(directory, endpoints, synthetic.service(served_name="m"))


def make_exact_job(directory: Path, model: Path, events: Sequence[tuple[str, str]]) -> None:
    """The same in P/D with `router.kv: events`; `events`: addresses of each engine's events and of their replay."""
    ports = ((Role.PREFILL, TELLING_PREFILL_PORTS), (Role.DECODE, TELLING_DECODE_PORTS))
    endpoints = [
        _endpoint(role, number, port).model_copy(update={"handoff": synthetic.handoff(block_size=BLOCK_TOKENS)})
        for role, each in ports
        for number, port in enumerate(each)
    ]
    told = [
        endpoint.model_copy(update={"events_url": url, "events_replay_url": replay_url})
        for endpoint, (url, replay_url) in zip(endpoints, events, strict=True)
    ]
    service = synthetic.service(served_name="m", model=model.name, router=RouterSettings(kv="events"))
    _write(directory, told, service)
    site = synthetic.site()
    paths = site.paths.model_copy(update={"models": str(model.parent)})
    (directory / "site.yaml").write_text(encode_yaml(site.model_copy(update={"paths": paths})))


def _write(directory: Path, endpoints: list[Endpoint], service: Service) -> None:
    for folder in ("keys", "endpoints", "heartbeats"):
        (directory / folder).mkdir(parents=True)
    (directory / "keys" / "api.key").write_text(f"{KEY}\n")
    (directory / "keys" / "engine.key").write_text(f"{ENGINE_KEY}\n")
    for endpoint in endpoints:
        write_record(directory / "endpoints" / f"{endpoint.id}.json", endpoint)
    (directory / "plan.json").write_bytes(encode_record(_plan(endpoints)))
    (directory / "service.yaml").write_text(encode_yaml(service))
    proofs = tuple(_proof(prefill, decode) for prefill, decode in _pairs(endpoints))
    write_record(
        directory / "router.state.json",
        RouterState(ready=False, ready_since_utc=None, waiting_for=(), proofs=proofs, mismatches=()),
    )


def beat(directory: Path, ended: threading.Event) -> None:
    """Keep the node's heartbeat going until `ended` is set."""
    heart = Heart(directory, node=_NODE, generation="bench")
    heart.beat()
    while not ended.wait(heart.period_s):
        heart.beat()


def _endpoint(role: Role, number: int, port: int) -> Endpoint:
    return Endpoint(
        id=f"{role}-{number}",
        generation="bench",
        role=role,
        url=f"http://127.0.0.1:{port}",
        node=_NODE,
        pid=1,
        model="m",
        engine="vllm",
        engine_version="0.32.0",
        handoff=None if role == Role.AGGREGATED else synthetic.handoff(),
        max_model_len=32768,
    )


def _pairs(endpoints: list[Endpoint]) -> list[tuple[Endpoint | None, Endpoint]]:
    prefills = [each for each in endpoints if each.role == Role.PREFILL]
    if not prefills:
        return [(None, each) for each in endpoints]
    return [(prefill, decode) for prefill in prefills for decode in endpoints if decode.role == Role.DECODE]


def _proof(prefill: Endpoint | None, decode: Endpoint) -> PairProof:
    return PairProof(
        prefill=None if prefill is None else prefill.id,
        prefill_generation=None if prefill is None else prefill.generation,
        decode=decode.id,
        decode_generation=decode.generation,
        proved=True,
        reason="told so by the benchmark",
    )


def _plan(endpoints: list[Endpoint]) -> Plan:
    pairs = [(prefill, decode) for prefill, decode in _pairs(endpoints) if prefill is not None]
    made = synthetic.plan() if pairs else synthetic.aggregated_plan()
    worker = made.workers[0]
    paths = tuple(
        made.paths[0].model_copy(
            update={"prefill": prefill.id, "decode": decode.id, "transfer_ms": 90.0 + 7.0 * number}
        )
        for number, (prefill, decode) in enumerate(pairs)
    )
    workers = tuple(worker.model_copy(update={"id": each.id, "role": each.role}) for each in endpoints)
    return made.model_copy(update={"workers": workers, "paths": paths})
