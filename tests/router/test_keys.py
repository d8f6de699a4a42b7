"""Keys, tenants and the salts that keep them apart."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.engines.handoff import decode_body, prefill_body, read_body, salted, whole_body
from hpcserve.errors import ServiceError
from hpcserve.router.desk import Limits
from hpcserve.router.key_file import KeyFile
from hpcserve.router.keys import KeyRing, read_tenants
from tests.router.client import KEY, request
from tests.router.faults import BODY, RIGHT
from tests.router.rig import Rig

ANNA, ANNAS_OTHER, BOB = "anna-0123456789abcdef", "anna-fedcba9876543210", "bob-00112233445566778899"
TENANTS = f"# who may ask\nanna {ANNA}\n\n  anna\t{ANNAS_OTHER}\nbob {BOB}\n"


def ring(secret: bytes = b"s") -> KeyRing:
    return KeyRing(KEY.encode(), tenants=read_tenants(TENANTS, source="tenants"), secret=secret)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_each_key_has_its_tenant_and_each_tenant_a_salt_that_stays() -> None:
    found = {key: ring().tenant_of(f"Bearer {key}".encode()) for key in (KEY, ANNA, ANNAS_OTHER, BOB)}
    assert [tenant and tenant.name for tenant in found.values()] == ["", "anna", "anna", "bob"]
    salts = [tenant.salt for tenant in found.values() if tenant is not None]
    assert salts[0] == ""
    assert salts[1] == salts[2] != salts[3]
    assert len(salts[1]) == 32
    assert ring().tenant_of(f"bearer  {ANNA} ".encode()) == found[ANNA]
    for wrong in (b"", b"Bearer", b"Bearer x", f"Basic {ANNA}".encode(), ANNA.encode(), f"Bearer {ANNA}x".encode()):
        assert ring().tenant_of(wrong) is None
    other = ring(b"another job").tenant_of(f"Bearer {ANNA}".encode())
    assert other is not None
    assert other.salt != salts[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("anna", "1 words, two were wanted"),
        (f"anna {ANNA} more", "3 words"),
        (f"an/na {ANNA}", "is no name"),
        ("anna short", "has 5 characters"),
        (f"anna {ANNA}\u00e9", "has 22 characters"),
        (f"bob {ANNA}", "stands in line 1 already"),
    ],
)
def test_mistakes_are_told_by_line_and_without_the_key(line: str, words: str) -> None:
    with pytest.raises(ServiceError, match=words) as caught:
        read_tenants(f"anna {ANNA}\n{line}\nx\n", source="keys/tenants")
    said = str(caught.value)
    assert "keys/tenants:2: " in said
    assert "keys/tenants:3: " in said, "all mistakes at once"
    assert ANNA not in said


@given(
    st.dictionaries(
        st.sampled_from(["model", "prompt", "cache_salt", "kv_transfer_params", "stream", 'a"b']),
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2),
    ),
    st.sampled_from([None, 1]),
)
def test_a_salt_is_on_every_leg_and_the_rest_as_it_was(fields: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(fields, indent=indent).encode()
    body = salted(read_body(text), "5a17")
    rest = {key: value for key, value in fields.items() if key not in {"cache_salt", "kv_transfer_params"}}
    assert json.loads(whole_body(body)) == rest | {"cache_salt": "5a17"}
    assert json.loads(decode_body(body, b"{}")) == rest | {"cache_salt": "5a17", "kv_transfer_params": {}}
    prefill = json.loads(prefill_body(body))
    assert prefill["cache_salt"] == "5a17"
    assert prefill["kv_transfer_params"]["do_remote_decode"]
    again = read_body(body.text)  # what was put together is a body without a key that stands twice
    assert {key: bytes(raw) for key, raw in again.fields.items()} == {
        key: bytes(raw) for key, raw in body.fields.items()
    }


def test_tenants_never_share_a_salt_whatever_they_send() -> None:
    async def run() -> None:
        async with Rig() as rig:
            rig.desk.keys = ring()
            prefill = rig.engines[0]
            bobs = ring().tenant_of(f"Bearer {BOB}".encode())
            assert bobs is not None
            seen = {}
            for name, key, own in (
                ("anna", ANNA, None),
                ("anna's other key", ANNAS_OTHER, None),
                ("bob", BOB, None),
                ("anna as bob", ANNA, bobs.salt),
                ("anna apart", ANNA, "apart"),
                ("bob apart", BOB, "apart"),
            ):
                body = BODY if own is None else BODY | {"cache_salt": own}
                answer = await rig.ask("/v1/completions", body, **bearer(key))
                assert answer.text == RIGHT
                seen[name] = prefill.calls[-1].body["cache_salt"]
                assert rig.engines[1].calls[-1].body["cache_salt"] == seen[name]
            assert seen["anna"] == seen["anna's other key"]
            assert len(set(seen.values())) == 5
            await rig.ask("/v1/completions", BODY)
            assert "cache_salt" not in prefill.calls[-1].body, "the job's own key leaves bodies alone"
            assert rig.desk.metrics.tenants == {"anna": 4, "bob": 2, "": 1}

    asyncio.run(run())


def test_one_connection_of_two_tenants_and_a_key_that_is_taken_back() -> None:
    async def run() -> None:
        async with Rig() as rig:
            rig.desk.keys = ring()
            prefill = rig.engines[0]
            client = await rig.connect()
            await client.write(b"".join(
                request("POST", "/v1/completions", BODY, **bearer(key)) for key in (ANNA, BOB, "wrong", ANNA)
            ))  # fmt: skip
            statuses = [(await client.answer()).status for _ in range(4)]
            assert statuses == [200, 200, 401, 200]
            salts = [call.body["cache_salt"] for call in prefill.calls]
            assert salts[0] == salts[2] != salts[1]
            rig.desk.keys = KeyRing(KEY.encode())
            await client.post("/v1/completions", BODY, **bearer(ANNA))
            assert (await client.answer()).status == 401

    asyncio.run(run())


def test_a_head_that_was_right_does_not_outlive_its_key() -> None:
    async def run() -> None:
        async with Rig() as rig:
            rig.desk.keys = ring()
            client = await rig.connect()

            async def status(data: bytes) -> int:
                await client.write(data)
                return (await client.answer()).status

            annas = request("POST", "/v1/completions", BODY, **bearer(ANNA))
            assert [await status(annas), await status(annas)] == [200, 200]
            rig.desk.keys = KeyRing(KEY.encode())
            raw = json.dumps(BODY).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
            assert await status(head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(raw), raw)) == 200
            assert [await status(annas), await status(annas)] == [401, 401]

    asyncio.run(run())


def test_the_file_is_read_again_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "api.key").write_text(KEY + "\n")
    tenants = tmp_path / "keys" / "tenants"
    keys = KeyFile(tmp_path, secret=b"s")
    assert not keys.ring().tenants
    assert keys.changed() == (None, "")
    tenants.write_text(TENANTS)
    found, words = keys.changed()
    assert found is not None
    assert found.tenant_of(f"Bearer {BOB}".encode()) is not None
    assert words
    assert BOB not in words
    for wrong in (b"bob short\n", b"\xff\n"):
        tenants.write_bytes(wrong)
        found, words = keys.changed()
        assert found is None
        assert "stays" in words
        assert keys.changed() == (None, ""), "once is enough"
    tenants.unlink()
    tenants.mkdir()
    os.utime(tenants, ns=(1, 1))
    assert "stays" in keys.changed()[1]
    tenants.rmdir()
    found, _ = keys.changed()
    assert found is not None
    assert not found.tenants


def test_a_body_that_drips_has_an_end() -> None:
    async def run() -> None:
        async with Rig(limits=Limits(body_s=0.3)) as rig:
            client = await rig.connect()
            text = request("POST", "/v1/completions", BODY)
            await client.write(text[:-40])
            answer = asyncio.create_task(client.answer())
            for place in range(40, 0, -1):
                await asyncio.sleep(0.05)
                if answer.done():
                    break
                await client.write(text[-place : -place + 1])
            assert (await answer).status == 408

    asyncio.run(run())


def test_a_tenant_does_not_see_what_others_asked() -> None:
    async def run() -> None:
        async with Rig() as rig:
            rig.desk.keys = ring()
            await rig.ask("/v1/completions", BODY, **bearer(BOB))
            answer = await rig.ask("/debug/decision", **bearer(ANNA))
            assert (answer.status, answer.error["code"]) == (403, "forbidden")
            assert len((await rig.ask("/debug/decision")).json["decisions"]) == 1

    asyncio.run(run())
