"""Proofs that a pair hands KV over rightly, and that a worker serves: by serving, the engines' counters as witness."""

import asyncio
import secrets
from dataclasses import dataclass

from hpcserve.engines import EngineCounters
from hpcserve.engines.handoff import decode_body, prefill_body, read_answer, read_body
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError, ask
from hpcserve.router.counters import CounterReader
from hpcserve.router.ledger import Finding
from hpcserve.router.pool import Pools
from hpcserve.router.proof_text import Completion, Likeness, compare, proof_body, proof_prompt, read_completion
from hpcserve.router.roster import Candidate

__all__ = ["Prover"]

_OK = 200
_SHOWN = 200
_AT_ONCE = 8
"""Handoffs of one proof that run together: a batch takes an engine hardly longer than one of them, and serving makes
batches as well."""
_MOST_UNSURE = 3
"""Handoffs that are made anew, with another prompt, because a rounding may have parted them from the local run."""


class _FailedError(Exception):
    """A proof that found nothing, in words."""


class _WrongError(Exception):
    """A proof that found a wrong answer, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """One handoff whose answer was not wrong. `unsure`: why it is not clearly right; empty where it is."""

    tokens: int
    unsure: str
    late_s: float
    """By how much its answer missed the limit."""


class Prover:
    """Proves pairs and workers, one after the other."""

    def __init__(
        self,
        pools: Pools,
        counters: CounterReader,
        *,
        key: str,
        handoff_s: float | None,
        leg_timeout_s: float = 120.0,
        counters_timeout_s: float = 12.0,
    ) -> None:
        """`handoff_s`: the limit of the lease rule, which holds here too.

        KV that comes late may be foreign, so a wrong answer then accuses nobody; and only the first handoffs of a
        proof, which connect the two engines, may be late at all.
        `counters_timeout_s`: vLLM adds up its transfers with its statistics, some seconds late when it is idle.
        """
        self._pools = pools
        self._counters = counters
        self._key = key
        self._handoff_s = leg_timeout_s if handoff_s is None else handoff_s
        self._leg_timeout_s = leg_timeout_s
        self._counters_timeout_s = counters_timeout_s

    async def prove(self, candidate: Candidate) -> Finding:
        """Whether it is proved, and what was seen. Never raises for what an engine does."""
        try:
            if candidate.prefill is None:
                return Finding(outcome="proved", reason=await self._prove_alone(candidate.decode))
            return await self._prove_pair(candidate.prefill, candidate.decode, candidate.rounds)
        except _WrongError as wrong:
            return Finding(outcome="wrong", reason=f"wrong answer: {wrong}")
        except _FailedError as failure:
            return Finding(outcome="failed", reason=str(failure))

    async def _prove_alone(self, worker: Endpoint) -> str:
        answer = await self._complete(worker, self._body(worker, _prompt(16, worker)), what="a completion")
        return f"it answered {len(answer.tokens)} tokens"

    async def _prove_pair(self, prefill: Endpoint, decode: Endpoint, rounds: int) -> Finding:
        before = await self._read(decode)
        made = unsure = tokens = 0
        late_s, one_more = 0.0, True
        while (owed := rounds - made + unsure) > 0 or (late_s > 0 and one_more):
            one_more = owed > 0  # after late ones, to see one that is in time
            found = await self._rounds(prefill, decode, min(_AT_ONCE, max(owed, 1)))
            made += len(found)
            late_s = max(each.late_s for each in found)
            tokens += sum(each.tokens for each in found if not each.unsure)
            doubts = [each.unsure for each in found if each.unsure]
            unsure += len(doubts)
            if unsure > _MOST_UNSURE:
                return Finding(outcome="unsure", reason=f"{unsure} of {made} answers too close to tell: {doubts[-1]}")
        if late_s > 0:
            raise _FailedError(f"right answers from {decode.id}, but {late_s:.1f} s after the limit of the lease rule")
        after = await self._moved(decode, before, made)
        moved = after.xfer_bytes - before.xfer_bytes
        count = after.xfer_count - before.xfer_count
        return Finding(outcome="proved", reason=f"{moved} bytes of KV in {count} transfers, {tokens} tokens equal")

    async def _rounds(self, prefill: Endpoint, decode: Endpoint, many: int) -> list[_Round]:
        """Several rounds together; a wrong answer counts before a failure."""
        tasks = [asyncio.create_task(self._round(prefill, decode)) for _ in range(many)]
        try:
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        for kind in (_WrongError, BaseException):
            for each in ended:
                if isinstance(each, kind):
                    raise each
        return [each for each in ended if not isinstance(each, BaseException)]

    async def _round(self, prefill: Endpoint, decode: Endpoint) -> _Round:
        """One handoff, and one local run of the same prompt to hold it against."""
        handoff = decode.handoff
        if prefill.handoff is None or handoff is None:
            raise _FailedError("a worker without a KV connector")
        prompt = _prompt(handoff.block_size, prefill, decode)
        local_run = asyncio.create_task(self._complete(decode, self._body(decode, prompt), what="the local run"))
        try:
            handed, late_s = await self._hand_over(prefill, decode, prompt)
            local = await local_run
        finally:
            local_run.cancel()
            await asyncio.gather(local_run, return_exceptions=True)
        likeness, words = compare(handed, local)
        if likeness is Likeness.OTHER and late_s > 0:
            raise _FailedError(f"an answer {late_s:.1f} s after the limit of the lease rule: {words}")
        if likeness is Likeness.OTHER:
            raise _WrongError(words)
        return _Round(tokens=len(handed.tokens), unsure=words, late_s=late_s)

    async def _hand_over(self, prefill: Endpoint, decode: Endpoint, prompt: str) -> tuple[Completion, float]:
        """What the decode worker said with the prefill worker's KV, and by how much it missed the limit."""
        # A salt for each leg: the decode worker pulls blocks by number, not by hash, and must find none at home.
        asked = self._body(prefill, prompt)
        text = await self._post(prefill, prefill_body(read_body(asked)), what="the prefill leg")
        answer = read_answer(text)
        if answer.transfer is None:
            raise _FailedError(f"the prefill leg of {prefill.id} handed nothing over ({answer.reason})")
        asked = decode_body(read_body(self._body(decode, prompt)), answer.transfer)
        since_s = asyncio.get_running_loop().time()
        handed = await self._complete(decode, asked, what="the decode leg", timeout_s=2 * self._handoff_s)
        return handed, max(0.0, asyncio.get_running_loop().time() - since_s - self._handoff_s)

    async def _moved(self, decode: Endpoint, before: EngineCounters, made: int) -> EngineCounters:
        """The decode worker's counters once they show a transfer for each handoff."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._counters_timeout_s
        while True:
            after = await self._read(decode)
            count = after.xfer_count - before.xfer_count
            if count >= made and after.xfer_bytes > before.xfer_bytes:
                return after
            if loop.time() > until_s:
                raise _FailedError(f"{decode.id} answered {made} handoffs, its counters show {count} KV transfers")
            await asyncio.sleep(0.25)

    async def _read(self, worker: Endpoint) -> EngineCounters:
        try:
            return await self._counters.of(worker)
        except AskError as error:
            raise _FailedError(f"no counters from {worker.id}: {error}") from None

    def _body(self, worker: Endpoint, prompt: str) -> bytes:
        return proof_body(model=worker.model, prompt=prompt, salt=f"proof-{secrets.token_hex(12)}")

    async def _complete(
        self, worker: Endpoint, body: bytes, *, what: str, timeout_s: float | None = None
    ) -> Completion:
        text = await self._post(worker, body, what=what, timeout_s=timeout_s)
        try:
            return read_completion(text)
        except ValueError as error:
            raise _FailedError(f"{what} on {worker.id}: {error}") from None

    async def _post(self, worker: Endpoint, body: bytes, *, what: str, timeout_s: float | None = None) -> bytes:
        try:
            status, text = await ask(
                self._pools,
                worker,
                "/v1/completions",
                body=body,
                key=self._key,
                timeout_s=timeout_s or self._leg_timeout_s,
            )
        except AskError as error:
            raise _FailedError(f"{what} on {worker.id}: {error}") from None
        if status != _OK:
            raise _FailedError(f"{what} on {worker.id} ended with {status}: {text[:_SHOWN].decode(errors='replace')}")
        return text


def _prompt(block_size: int, *workers: Endpoint) -> str:
    """A prompt that nobody has, and that all of these workers take."""
    longest = [worker.max_model_len for worker in workers if worker.max_model_len is not None]
    return proof_prompt(secrets.randbits(48), block_size=block_size, max_tokens=min(longest, default=None))
