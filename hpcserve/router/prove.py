"""Proofs that a pair hands KV over rightly, and that a worker serves: by serving, the engines' counters as witness."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Protocol

from hpcserve.engines.handoff import decode_body, prefill_body, read_answer, read_body
from hpcserve.errors import ServiceError
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError, ask
from hpcserve.router.pool import Pools
from hpcserve.router.proof_text import Completion, difference, proof_body, proof_prompt, read_completion
from hpcserve.router.roster import Candidate

__all__ = ["Counters", "Prover"]

_OK = 200
_SHOWN = 200


class Counters(Protocol):
    """What is read of an engine's counters here."""

    @property
    def xfer_count(self) -> int:
        """KV transfers that it pulled."""

    @property
    def xfer_bytes(self) -> int:
        """Their bytes."""

    @property
    def running(self) -> int:
        """Requests that are being computed."""

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn, or for their KV."""

    @property
    def generation_tokens(self) -> int:
        """Tokens made so far."""


class _FailedError(Exception):
    """A proof that failed, in words."""


class Prover:
    """Proves pairs and workers, one after the other."""

    def __init__(
        self,
        pools: Pools,
        *,
        key: str,
        read_counters: Callable[[str], Counters],
        leg_timeout_s: float = 120.0,
        counters_timeout_s: float = 12.0,
    ) -> None:
        """`counters_timeout_s`: vLLM adds up its transfers with its statistics, some seconds late when it is idle."""
        self._pools = pools
        self._key = key
        self._read_counters = read_counters
        self._leg_timeout_s = leg_timeout_s
        self._counters_timeout_s = counters_timeout_s

    async def prove(self, candidate: Candidate) -> tuple[bool, str]:
        """Whether it is proved, and what was seen, in words. Never raises for what an engine does."""
        try:
            if candidate.prefill is None:
                return True, await self._prove_alone(candidate.decode)
            return True, await self._prove_pair(candidate.prefill, candidate.decode)
        except _FailedError as failure:
            return False, str(failure)

    async def _prove_alone(self, worker: Endpoint) -> str:
        body = self._body(worker, block_size=16)
        answer = await self._complete(worker, body, what="a completion")
        return f"it answered {len(answer.tokens)} tokens"

    async def _prove_pair(self, prefill: Endpoint, decode: Endpoint) -> str:
        handoff = decode.handoff
        if prefill.handoff is None or handoff is None:
            raise _FailedError("a worker without a KV connector")
        nonce = secrets.randbits(48)
        before = await self.counters(decode)
        # A salt for each leg: the decode worker pulls blocks by number, not by hash, and must find none at home.
        asked = self._body(prefill, block_size=handoff.block_size, nonce=nonce)
        text = await self._post(prefill, prefill_body(read_body(asked)), what="the prefill leg")
        answer = read_answer(text)
        if answer.transfer is None:
            raise _FailedError(f"the prefill leg of {prefill.id} handed nothing over ({answer.reason})")
        asked = self._body(decode, block_size=handoff.block_size, nonce=nonce)
        handed = await self._complete(decode, decode_body(read_body(asked), answer.transfer), what="the decode leg")
        asked = self._body(decode, block_size=handoff.block_size, nonce=nonce)
        local = await self._complete(decode, asked, what="the local run")
        after = await self._moved(decode, before)  # last: an idle vLLM shows a transfer at its next step only
        same_split = prefill.handoff.tensor_parallel == handoff.tensor_parallel
        wrong = difference(handed, local, same_split=same_split)
        if wrong:
            raise _FailedError(f"wrong answer: {wrong}")
        moved = (
            f"{after.xfer_bytes - before.xfer_bytes} bytes of KV in {after.xfer_count - before.xfer_count} transfers"
        )
        return f"{moved}, {len(local.tokens)} tokens equal"

    async def _moved(self, decode: Endpoint, before: Counters) -> Counters:
        """The decode worker's counters once they show a transfer."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._counters_timeout_s
        while True:
            after = await self.counters(decode)
            if after.xfer_count > before.xfer_count and after.xfer_bytes > before.xfer_bytes:
                return after
            if loop.time() > until_s:
                raise _FailedError(f"{decode.id} answered, but its counters show no KV transfer")
            await asyncio.sleep(0.25)

    async def counters(self, worker: Endpoint) -> Counters:
        """The counters of a worker now; raises for a proof where it has none."""
        try:
            status, text = await ask(self._pools, worker, "/metrics", timeout_s=10)
            if status != _OK:
                raise _FailedError(f"{worker.id} answered /metrics with {status}")
            return self._read_counters(text.decode(errors="replace"))
        except (AskError, ServiceError) as error:
            raise _FailedError(f"no counters from {worker.id}: {error}") from None

    def _body(self, worker: Endpoint, *, block_size: int, nonce: int | None = None) -> bytes:
        prompt = proof_prompt(
            secrets.randbits(48) if nonce is None else nonce, block_size=block_size, max_tokens=worker.max_model_len
        )
        return proof_body(model=worker.model, prompt=prompt, salt=f"proof-{secrets.token_hex(12)}")

    async def _complete(self, worker: Endpoint, body: bytes, *, what: str) -> Completion:
        text = await self._post(worker, body, what=what)
        try:
            return read_completion(text)
        except ValueError as error:
            raise _FailedError(f"{what} on {worker.id}: {error}") from None

    async def _post(self, worker: Endpoint, body: bytes, *, what: str) -> bytes:
        try:
            status, text = await ask(
                self._pools, worker, "/v1/completions", body=body, key=self._key, timeout_s=self._leg_timeout_s
            )
        except AskError as error:
            raise _FailedError(f"{what} on {worker.id}: {error}") from None
        if status != _OK:
            raise _FailedError(f"{what} on {worker.id} ended with {status}: {text[:_SHOWN].decode(errors='replace')}")
        return text

    async def nobody_waits(self, worker: Endpoint, *, apart_s: float) -> bool:
        """Whether no request of this worker waits for its turn or its KV, and the worker is computing: two readings.

        Two, because a worker whose engine stands still goes on to show what it counted last.
        """
        try:
            first = await self.counters(worker)
            if first.waiting or not first.running:
                return False
            await asyncio.sleep(apart_s)
            second = await self.counters(worker)
        except _FailedError:
            return False
        return not second.waiting and second.generation_tokens > first.generation_tokens
