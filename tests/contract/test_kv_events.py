"""KV events are what the index takes them for, of one form in vLLM and the simulated engine; so are token ids."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import zmq

from hpcserve.agent.ports import reserve
from hpcserve.engines import adapter_for
from hpcserve.nouns import Endpoint, EngineFacts, GrantedNode, PlannedWorker, Rank, Role
from hpcserve.provision import MODEL_NAMES, cache_directory, engine_prefix, model_directory
from hpcserve.router.counters import CounterReader
from hpcserve.router.event_feeds import EventFeeds
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.kv_probe import KvProbe
from hpcserve.router.kv_prompt import Kind as PromptKind
from hpcserve.router.kv_watch import KvWatch
from hpcserve.router.pool import Pools
from hpcserve.router.tokens import PromptTokens, load_prompt_tokens
from hpcserve.routing.block_hashes import block_keys
from hpcserve.routing.kv_index import KvIndex
from hpcserve.site import load_service, load_site
from tests.contract.conftest import KINDS
from tests.contract.pair import Kind
from tests.real.harness import ROOT, wait_for
from tests.tiny_model import write_tokenizer

BLOCK = 32
BLOCKS = 80
KEY = "a key of the KV event tests"
WORKER = "aggregated-0"

SERVICE = """
schema: hpcserve.service/1
name: kv-events
model: {model}
served_name: smollm2
engine: {engine}
mode: aggregated
partition: null
time: 0:30:00
args: {args}
router: {{kv: events}}
pools: [{{role: aggregated, workers: 1}}]
slo: {{ttft_ms: 1000.0, tpot_ms: 150.0}}
workload: {{input_tokens: 512, output_tokens: 16}}
"""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A running engine that publishes KV events."""

    client: httpx.Client
    endpoint: Endpoint
    tokens: PromptTokens

    def post(self, path: str, **body: Any) -> Any:
        answer = self.client.post(path, json={"model": "smollm2", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module", params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    kind: Kind = request.param
    made = tmp_path_factory.mktemp(f"events-{kind}")
    cache = cache_directory(os.environ)
    model = Path(model_directory(MODEL_NAMES[0], cache)) if kind == "vllm" else made
    if kind == "sim":
        write_tokenizer(model)
    ports = reserve(("127.0.0.1",), [4])  # HTTP, side channel, KV events and their repetition
    port = ports.blocks[0][0]
    args = ["--max-model-len", "2048", "--max-num-seqs", "4", "--block-size", str(BLOCK)]
    args += ["--kv-cache-memory-bytes", str(BLOCKS * BLOCK * 23040)]
    args += ["--sim-kv-bytes-per-token", "23040"] if kind == "sim" else []
    site_path = ROOT / "site_configs" / "local.yaml"
    site = load_site(site_path.read_text(encoding="utf-8"), source=str(site_path))
    text = SERVICE.format(model=model, engine=kind, args=json.dumps(args))
    service = load_service(text, source="kv.yaml", site=site)
    facts = EngineFacts(
        name=kind,
        version="0.32.0",
        platform="cpu" if kind == "vllm" else "simulated",
        kv_connectors=(),
        nixl_version=None,
    )
    node = GrantedNode(
        name="local1",
        hostname="localhost",
        control_address="127.0.0.1",
        data_address="127.0.0.1",
        cores=(0,),
        gpus=(),
        engine=facts,
        ports=ports.blocks,
        agent_pid=1,
        generation="1",
    )
    worker = PlannedWorker(
        id=WORKER,
        role=Role.AGGREGATED,
        ranks=(Rank(node="local1", gpus=(0,), nics=("lo",), cores=(0,)),),
        tensor_parallel=1,
        port=port,
        side_channel_port=port + 1,
    )
    events, repeated = adapter_for(kind).event_ports(service, worker) or (0, 0)
    command = adapter_for(kind).command(worker=worker, service=service, site=site, node=node, model_dir=str(model))
    program = str(engine_prefix(cache) / "bin" / command.argv[0]) if kind == "vllm" else sys.executable
    argv = [program, *command.argv[1:]]
    log = made / "log"
    environment = {**os.environ, **command.env, command.key_variable: KEY, "VLLM_SERVER_DEV_MODE": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(argv, env=environment, stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    endpoint = Endpoint(
        id=WORKER,
        generation="1",
        role=Role.AGGREGATED,
        url=url,
        node="local1",
        pid=process.pid,
        model="smollm2",
        engine=kind,
        engine_version="0.32.0",
        handoff=None,
        max_model_len=2048,
        events_url=f"tcp://127.0.0.1:{events}",
        events_replay_url=f"tcp://127.0.0.1:{repeated}",
    )
    client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=120, trust_env=False)

    def healthy() -> bool | None:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            return client.get("/health").status_code == 200 or None
        except httpx.TransportError:
            return None

    try:
        wait_for("the engine's health", healthy, within_s=300)
        yield Engine(client=client, endpoint=endpoint, tokens=load_prompt_tokens(model))
    finally:
        client.close()
        process.terminate()
        process.wait(timeout=60)
        ports.close()


TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "Name three rivers and say where each of them ends. Begin with the longest one."},
    {"role": "assistant", "content": "The Nile ends in the Mediterranean Sea.\n\nThe Amazon …"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Und auf Deutsch?"}, {"type": "text", "text": " 你好 🌊 <|im_end|>"}],
    },
    {"role": "assistant", "content": None},
    {"role": "user", "content": ""},
]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
REQUESTS: list[tuple[PromptKind, dict[str, Any]]] = [
    *(("chat", {"messages": TURNS[:count]}) for count in range(1, len(TURNS) + 1)),
    ("chat", {"messages": [{"role": "system", "content": "Be brief."}, *TURNS]}),
    ("chat", {"messages": TURNS, "add_generation_prompt": False}),
    ("chat", {"messages": TURNS, "add_special_tokens": True}),
    ("chat", {"messages": TURNS, "tools": [TOOL]}),
    ("chat", {"messages": TURNS, "chat_template_kwargs": {"enable_thinking": False}}),
    ("completions", {"prompt": "The wind. " * 40}),
    ("completions", {"prompt": "  \n\t<|im_start|>user\nx<|im_end|> y\u0301 "}),
    ("completions", {"prompt": "x", "add_special_tokens": False}),
]


def fields(body: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])


def test_token_ids_are_the_engines_own(engine: Engine) -> None:
    assert engine.tokens.by_piece
    for kind, body in REQUESTS:
        theirs = engine.post("/tokenize", **body)["tokens"]
        ours = memoryview(engine.tokens.tokens(kind, fields(body))).cast("I").tolist()
        assert ours == theirs, body


class Router:
    """What the router has of this engine, and requests that it would route."""

    def __init__(self, engine: Engine) -> None:
        loop = asyncio.get_running_loop()
        self.engine = engine
        self.said: list[str] = []
        self.index = KvIndex()
        self.knowledge = KvKnowledge(now_s=loop.time, index=self.index, tokens=engine.tokens)
        self.feeds = EventFeeds(self.index, log=self.said.append, now_s=loop.time)
        self.pools = Pools(loop=loop)
        self.counters = CounterReader(self.pools, adapter_for(engine.endpoint.engine).read_counters)
        self.probe = KvProbe(self.pools, self.counters, self.index, key=KEY)
        self.watch = KvWatch(
            self.knowledge, self.feeds, self.counters, self.probe, log=self.said.append, now_s=loop.time
        )

    async def close(self) -> None:
        await self.feeds.close()
        self.pools.close()
        self.knowledge.close()

    async def ask(self, kind: PromptKind, **asked: Any) -> tuple[int, int]:
        """(tokens predicted to be cached, tokens that its counters show more)."""
        asked = {"model": "smollm2", "max_tokens": 1, "temperature": 0, **asked}
        prompt = self.knowledge.read(kind, fields(asked))
        before = (await self.counters.of(self.engine.endpoint)).local_hit_tokens
        predicted = self.knowledge.overlaps(prompt).get(WORKER, 0)
        path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
        await asyncio.to_thread(self.engine.post, path, **asked)
        await asyncio.sleep(0.5)
        return predicted, (await self.counters.of(self.engine.endpoint)).local_hit_tokens - before

    def missing(self, kind: PromptKind, **asked: Any) -> int:
        """Blocks of this prompt that the index does not have."""
        keys = block_keys(self.engine.tokens.tokens(kind, fields(asked)), BLOCK, salt=asked.get("cache_salt"))
        return len(keys) - self.index.find(keys).get(WORKER, 0)

    async def until_told(self, kind: PromptKind, **asked: Any) -> None:
        """Wait for the events of this prompt."""
        async with asyncio.timeout(20):
            while self.missing(kind, **asked):  # noqa: ASYNC110 - events come by a socket
                await asyncio.sleep(0.05)


def run(engine: Engine, body: Callable[[Router], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        router = Router(engine)
        try:
            await body(router)
            assert router.said == []
        finally:
            await router.close()

    asyncio.run(whole())


EARLY: dict[str, Any] = {"messages": [{"role": "user", "content": "The sea is wide. " * 60}]}
LONGER: dict[str, Any] = {"messages": [*EARLY["messages"], *TURNS]}


def test_what_is_predicted_is_what_the_engine_finds_in_its_cache(engine: Engine) -> None:
    """A prompt from before the router came, a conversation that goes on, tenants apart."""

    async def body(router: Router) -> None:
        assert await router.ask("chat", **EARLY) == (0, 0)
        router.watch.follow((engine.endpoint,))
        await router.until_told("chat", **EARLY)
        predicted, hit = await router.ask("chat", **EARLY)
        assert predicted == hit > 5 * BLOCK
        predicted, hit = await router.ask("chat", **LONGER)
        assert predicted == hit > 5 * BLOCK
        await router.until_told("chat", **LONGER)
        predicted, hit = await router.ask("chat", **LONGER)
        assert predicted == hit > 7 * BLOCK
        assert await router.ask("chat", **EARLY, cache_salt="tenant-a") == (0, 0)
        await router.until_told("chat", **EARLY, cache_salt="tenant-a")
        predicted, hit = await router.ask("chat", **EARLY, cache_salt="tenant-a")
        assert predicted == hit > 5 * BLOCK
        assert await router.ask("chat", **EARLY, cache_salt="tenant-b") == (0, 0)

    run(engine, body)


def test_the_probe_finds_the_engine_well(engine: Engine) -> None:
    async def body(router: Router) -> None:
        router.watch.follow((engine.endpoint,))
        assert await router.probe.tokens_differ(engine.endpoint, engine.tokens) == ""
        await router.watch.look(engine.endpoint)
        assert router.knowledge.doubted == {}

    run(engine, body)


def test_what_is_evicted_or_cleared_is_known_to_be_gone(engine: Engine) -> None:
    async def body(router: Router) -> None:
        ids = {"prompt": list(range(1000, 1000 + 5 * BLOCK))}
        router.watch.follow((engine.endpoint,))
        assert await router.ask("completions", **ids) == (0, 0)
        await router.until_told("completions", **ids)
        assert await router.ask("completions", **ids) == (4 * BLOCK, 4 * BLOCK)  # the last token is always computed
        for start in (5000, 9000):  # more than the cache holds: the oldest blocks go
            await router.ask("completions", prompt=list(range(start, start + 50 * BLOCK)))
        await asyncio.sleep(1)
        assert await router.ask("completions", **ids) == (0, 0)
        feed = router.feeds.feeds[WORKER]
        assert feed.blocks.removed > 0
        assert feed.counts.lost_batches == feed.counts.unreadable == 0
        assert feed.blocks.orphans == feed.blocks.unusable == feed.blocks.passed_over == 0
        assert 0 < router.index.blocks <= BLOCKS

        await router.until_told("completions", **ids)
        reset = await asyncio.to_thread(engine.client.post, "/reset_prefix_cache")
        assert reset.status_code == 200
        await router.ask("completions", prompt=[7, 8, 9])  # the event comes with the next step
        async with asyncio.timeout(20):
            while router.missing("completions", **ids) < 5:  # noqa: ASYNC110 - events come by a socket
                await asyncio.sleep(0.05)
        assert await router.ask("completions", **ids) == (0, 0)

    run(engine, body)


def repeated(engine: Engine) -> list[tuple[int, Any]]:
    """(number, batch) of everything that the engine has published, as it repeats it."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as asked:
        asked.setsockopt(zmq.LINGER, 0)
        asked.connect(engine.endpoint.events_replay_url or "")
        asked.send_multipart([b"", bytes(8)])
        found: list[tuple[int, Any]] = []
        while asked.poll(20_000):
            empty, topic, number, batch = asked.recv_multipart()
            assert empty == b""
            if number == b"\xff" * 8:
                assert (topic, batch) == (b"", b"")
                return found
            assert topic == b"kv-events"
            found.append((int.from_bytes(number), msgspec.msgpack.decode(batch)))
    raise AssertionError("the engine did not repeat its events to their end")


def told(engine: Engine, tokens: list[int]) -> list[dict[str, Any]]:
    """The events that tell of a prompt of these tokens, once there is one."""

    def found() -> list[dict[str, Any]] | None:
        every = [event for _, (_, events, _) in repeated(engine) for event in events]
        mine = [event for event in every if tokens[0] in event.get("token_ids", ())]
        return mine or None

    return wait_for("the events", found, within_s=20)


def test_the_form_of_what_is_stored(engine: Engine) -> None:
    """Key by key: a salted prompt, then one that goes on with it."""
    tokens = list(range(20_000, 20_000 + 3 * BLOCK + 5))
    engine.post("/v1/completions", prompt=tokens, max_tokens=1, cache_salt="tenant")
    (event,) = told(engine, tokens)
    names = event["block_hashes"]
    assert all(type(name) is int and 0 <= name < 1 << 64 for name in names)
    assert len(set(names)) == 3
    stored = {
        "type": "BlockStored",
        "block_hashes": names,
        "parent_block_hash": None,
        "token_ids": tokens[: 3 * BLOCK],
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [["tenant"], None, None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    assert list(event.items()) == list(stored.items())
    longer = [*tokens, *range(21_000, 21_000 + BLOCK)]
    engine.post("/v1/completions", prompt=longer, max_tokens=1, cache_salt="tenant")
    (event,) = told(engine, longer[3 * BLOCK :])
    assert event["parent_block_hash"] == names[-1]
    assert (event["token_ids"], event["extra_keys"]) == (longer[3 * BLOCK : 4 * BLOCK], [None])


def test_answers_are_stored_as_their_blocks_fill(engine: Engine) -> None:
    tokens = list(range(22_000, 22_000 + BLOCK))
    answer = engine.post(
        "/v1/completions", prompt=tokens, max_tokens=BLOCK + 4, ignore_eos=True, return_token_ids=True, temperature=0
    )
    made = answer["choices"][0]["token_ids"]
    (first,) = told(engine, tokens)
    every = [event for _, (_, events, _) in repeated(engine) for event in events]
    (second,) = [event for event in every if event.get("parent_block_hash") == first["block_hashes"][-1]]
    assert second["token_ids"] == made[:BLOCK]


def test_the_form_of_what_is_removed_and_the_numbers_of_batches(engine: Engine) -> None:
    tokens = list(range(30_000, 30_000 + 2 * BLOCK))
    engine.post("/v1/completions", prompt=tokens, max_tokens=1)
    (stored,) = told(engine, tokens)
    for start in (31_000, 35_000):
        engine.post("/v1/completions", prompt=list(range(start, start + 50 * BLOCK)), max_tokens=1)
    batches = repeated(engine)
    assert [number for number, _ in batches] == list(range(len(batches)))
    for _, (at, events, rank) in batches:
        assert (type(at), rank) == (float, 0)
        assert events
    removed = [event for _, (_, events, _) in batches for event in events if event["type"] == "BlockRemoved"]
    mine = [event for event in removed if event["block_hashes"][0] in stored["block_hashes"]]
    assert [list(event.items()) for event in mine] == [
        list({"type": "BlockRemoved", "block_hashes": [name], "medium": "GPU", "group_idx": 0}.items())
        for name in reversed(stored["block_hashes"])  # the end of a prompt goes before its beginning
    ]
