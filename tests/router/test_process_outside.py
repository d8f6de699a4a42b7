"""Keys of tenants, the access log, the engines' own counts and the last choices, on processes."""

import json

import httpx

from hpcserve.nouns import Role, RouterSettings
from hpcserve.wire import encode_yaml
from tests import synthetic
from tests.router.processes import BODY, HEADERS, Job, until

ANNA, BOB = "anna-0123456789abcdef", "bob-00112233445566778899"


def test_tenants_come_and_go_while_the_router_runs(job: Job) -> None:
    settings = RouterSettings(access_log=True, refuse_beyond_slo=1e6, split="when-cheaper", temperature=0.1)
    service = synthetic.service(engine="sim", kv_lease_s=4, router=settings)
    (job.directory / "service.yaml").write_text(encode_yaml(service))
    (job.directory / "logs").mkdir()
    tenants = job.directory / "keys" / "tenants"
    tenants.write_text(f"anna {ANNA}\n")
    job.start_engine(Role.PREFILL, "p1")
    job.start_engine(Role.DECODE, "d1")
    job.start_router()
    until(job.ready)

    def status(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(f"{job.url}/v1/completions", headers=headers, json=BODY, timeout=20).status_code

    assert (status(ANNA), status(BOB)) == (200, 401)
    tenants.write_text(f"bob {BOB}\n")
    until(lambda: status(BOB) == 200)
    assert status(ANNA) == 401
    tenants.write_text("bob short\n")
    until(lambda: "what was read before stays" in (job.directory / "router.log").read_text())
    assert status(BOB) == 200
    decisions = httpx.get(f"{job.url}/debug/decision", headers=HEADERS).json()["decisions"]
    assert decisions[0]["expected"]["prefill_ms"] > 0
    until(lambda: "hpcserve_router_worker_prefix_query_tokens_total{" in httpx.get(f"{job.url}/metrics").text)
    until(lambda: "hpcserve_router_worker_kv_room_tokens{" in httpx.get(f"{job.url}/metrics").text)
    access = job.directory / "logs" / "access.jsonl"
    lines = until(lambda: [json.loads(line) for line in access.read_text().splitlines()])
    assert {"anna", "bob", ""} == {line["tenant"] for line in lines}
    assert {200, 401} == {line["status"] for line in lines}
    for hidden in (ANNA, BOB, str(BODY["prompt"])):
        assert hidden not in access.read_text()
        assert hidden not in (job.directory / "router.log").read_text()
