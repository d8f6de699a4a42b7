"""What tells of the fake engines' KV: their prefix caches, the publishers of their events, and `/tokenize`.

    python -m benchmarks.router.teller SOCKET MODEL_DIRECTORY ENGINES ADDRESSES

One process for all engines of `engines -t SOCKET`, which ask here about each prompt that is new to one of them; what is
asked and answered stands there. Blocks are told of as vLLM tells of them, on sockets that do what its own do, and are
all dropped where an engine's room is full. Tokens are made with the router's own tokenizer, so this says nothing of
whether they are vLLM's: contract tests do. ADDRESSES: the file that says where events and replays are to be had.
"""

import asyncio
import contextlib
import json
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import msgspec

from hpcserve.router.tokens import PromptTokens, load_prompt_tokens
from hpcserve.routing import block_keys
from tests.router.publisher import Publisher

__all__ = ["BLOCK_TOKENS"]

BLOCK_TOKENS = 16
"""vLLM's usual size of a block."""
_ROOM_BLOCKS = 60_000
"""Of one engine: about a million tokens, and twice what the load's 128 prompts take."""
_HEAD_BYTES = 18


class _Engine:
    """The prefix cache of one engine."""

    def __init__(self) -> None:
        self.publisher = Publisher()
        self._held: set[int] = set()

    async def take(self, ids: bytes) -> str:
        """Compute this prompt; what the engine is told of it."""
        keys = block_keys(ids, BLOCK_TOKENS)
        tokens = array("I", ids)
        found = next((place for place, key in enumerate(keys) if key not in self._held), len(keys))
        most = (len(tokens) - 1) // BLOCK_TOKENS  # the last token is always computed
        hits = min(found, most) * BLOCK_TOKENS
        cleared = len(self._held) + len(keys) > _ROOM_BLOCKS
        if cleared:
            self._held.clear()
            await self._publish({"type": "AllBlocksCleared"})
            found = 0
        if found < len(keys):
            self._held.update(keys[found:])
            await self._publish(
                {
                    "type": "BlockStored",
                    "block_hashes": keys[found:],
                    "parent_block_hash": keys[found - 1] if found else None,
                    "token_ids": tokens[found * BLOCK_TOKENS : len(keys) * BLOCK_TOKENS].tolist(),
                    "block_size": BLOCK_TOKENS,
                    "lora_id": None,
                    "medium": "GPU",
                    "lora_name": None,
                    "extra_keys": [None] * (len(keys) - found),
                    "group_idx": 0,
                    "kv_cache_spec_kind": "full_attention",
                }
            )
        return f"{most * BLOCK_TOKENS} {hits} {int(cleared)}"

    async def _publish(self, event: dict[str, Any]) -> None:
        await self.publisher.publish_bytes(msgspec.msgpack.encode([time.time(), [event], 0]))


class _Teller:
    def __init__(self, tokens: PromptTokens, engines: list[_Engine]) -> None:
        self._tokens = tokens
        self._engines = engines

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the engines' process until it ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                engine, what, size = (await reader.readexactly(_HEAD_BYTES)).split()
                body = await reader.readexactly(int(size))
                answer = (await self._answer(int(engine), what.decode(), body)).encode()
                writer.write(b"%8d\n%s" % (len(answer), answer))
                await writer.drain()

    async def _answer(self, engine: int, what: str, body: bytes) -> str:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        chat = what == "C" or (what == "T" and "messages" in fields)
        ids = self._tokens.tokens("chat" if chat else "completions", fields)
        return (
            json.dumps({"tokens": array("I", ids).tolist()}) if what == "T" else await self._engines[engine].take(ids)
        )


def _write(addresses: Path, made: list[tuple[str, str]]) -> None:
    whole = addresses.with_suffix(".whole")
    whole.write_text(json.dumps(made))
    whole.rename(addresses)


async def _main(socket: str, model: str, count: str, addresses: str) -> None:
    tokens = load_prompt_tokens(Path(model))
    engines = [_Engine() for _ in range(int(count))]
    repeating = [asyncio.create_task(engine.publisher.repeat()) for engine in engines]
    server = await asyncio.start_unix_server(_Teller(tokens, engines).serve, socket)
    _write(Path(addresses), [(engine.publisher.url, engine.publisher.replay_url) for engine in engines])
    async with server:
        await asyncio.gather(server.serve_forever(), *repeating)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
