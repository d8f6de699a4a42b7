"""The simulated engine's loop: admission, prefix cache, pulls, prefill and decode in common steps, like vLLM's."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import chain
from uuid import uuid4

from hpcserve.simengine.kv import CHUNK, extend, next_state, start_state, token_at
from hpcserve.simengine.kv_events import KvEvents
from hpcserve.simengine.leases import Leases
from hpcserve.simengine.meters import Meters
from hpcserve.simengine.pool import BlockPool, next_key, prefix_keys
from hpcserve.simengine.pull import BadHandoffError, Puller
from hpcserve.simengine.request import Finish, Generation, Put
from hpcserve.simengine.settings import Settings
from hpcserve.simengine.sidechannel import Peer, PullError, SideChannel
from hpcserve.simengine.tokens import EOS

__all__ = ["Engine"]


class Engine:
    """One engine."""

    def __init__(
        self, settings: Settings, die: Callable[[str], None], *, tell: Callable[[bytes], None] | None = None
    ) -> None:
        """`die` is called with a reason when a request broke it, as a malformed handoff breaks vLLM.

        `tell` is called with each batch of KV events; None: nobody wants to know.
        """
        self.settings = settings
        self.id = str(uuid4())
        self.meters = Meters(settings)
        self.dead: str | None = None
        self._die = die
        self._tell = tell
        self._events = KvEvents(settings.block_size)
        self._pool = BlockPool(
            settings.blocks, caching=settings.prefix_caching, forgot=None if tell is None else self._events.removed
        )
        self._waiting: deque[Generation] = deque()
        self._pulling: list[Generation] = []
        self._running: list[Generation] = []
        self._news = asyncio.Event()
        self._leases: Leases | None = None
        self._puller: Puller | None = None
        self._channel: SideChannel | None = None
        self._side_port = 0

    async def start(self) -> None:
        """Open the side channel, if there is to be one; raises OSError where its address is taken."""
        transfer = self.settings.transfer
        if transfer is None:
            return
        self._leases = Leases(self._pool, self.meters, lease_s=transfer.lease_s, released=self._news.set)
        self._puller = Puller(self.settings, transfer, self.meters)
        me = Peer(
            engine_id=self.id,
            block_size=self.settings.block_size,
            tensor_parallel=self.settings.tensor_parallel,
        )
        self._channel = SideChannel(me=me, read=self._pool.read, beat=self._leases.beat, done=self._leases.done)
        self._side_port = await self._channel.listen(transfer.host, transfer.port)

    def close(self) -> None:
        """Close the side channel and end what runs."""
        if self._channel is not None:
            self._channel.close()
        for generation in [*self._waiting, *self._pulling, *self._running]:
            self._finish(generation, "abort")

    def add(self, generation: Generation) -> None:
        """Take a request; its answer comes through its `puts`."""
        generation.keys = prefix_keys(generation.prompt, self.settings.block_size, generation.salt)
        self._waiting.append(generation)
        self._gauge()
        self._news.set()

    def abort(self, generation: Generation) -> None:
        """Drop a request that nobody waits for any more."""
        if not generation.finished:
            self._finish(generation, "abort")

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False while requests have blocks. Told with the next step's events, as vLLM."""
        done = self._pool.clear()
        if done and self._tell is not None:
            self._events.cleared()
        return done

    def handoff_params(self, generation: Generation) -> dict[str, object] | None:
        """kv_transfer_params of a finished request whose KV is kept; None for others (nixl/pull_scheduler.py)."""
        transfer = self.settings.transfer
        if transfer is None or not generation.keep_for_remote:
            return None
        params: dict[str, object] = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [generation.kept_block_ids],
            "remote_engine_id": self.id,
            "remote_request_id": generation.id,
            "remote_host": transfer.host,
            "remote_port": self._side_port,
            "tp_size": self.settings.tensor_parallel,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": generation.computed,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
        }
        if len(generation.output) == 1:
            params["remote_prefill_cached_tokens"] = generation.cached_tokens
        return params

    async def run(self) -> None:
        """The loop; runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._admit()
            if not self._running:
                self._news.clear()
                await self._news.wait()
                continue
            step_s = self._plan_step()
            await asyncio.sleep(step_s)
            self._finish_step(loop.time())
            self._tell_events()
            self._gauge()

    def _tell_events(self) -> None:
        if self._tell is not None:
            batch = self._events.take(time.time())
            if batch is not None:
                self._tell(batch)

    def _admit(self) -> None:
        while self._waiting and len(self._running) + len(self._pulling) < self.settings.max_num_seqs:
            generation = self._waiting[0]
            if not self._allocate(generation):
                return
            self._waiting.popleft()
            if generation.pull is not None and self._puller is not None:
                self._pulling.append(generation)
                generation.pulling = asyncio.ensure_future(self._bring(generation, self._puller))
            else:
                self._running.append(generation)

    def _allocate(self, generation: Generation) -> bool:
        """Give a request the blocks of its tokens; False where there are too few free ones."""
        size = self.settings.block_size
        # The last token is always computed, for its output is wanted (v1/core/kv_cache_manager.py).
        hits = self._pool.find(generation.keys[: (len(generation.prompt) - 1) // size])
        more = self._pool.take(-(-len(generation.tokens) // size) - len(hits))
        if more is None:
            self._pool.release(hits)
            return False
        generation.blocks = [*hits, *more]
        generation.cached_tokens = generation.computed = len(hits) * size
        self.meters.prefix_queries.inc(len(generation.prompt))
        self.meters.prefix_hits.inc(generation.cached_tokens)
        if self.settings.transfer is not None:
            self.meters.external_queries.inc(len(generation.prompt) - generation.cached_tokens)
        return True

    async def _bring(self, generation: Generation, puller: Puller) -> None:
        """Pull a prompt's KV, then let the request run."""
        pull = generation.pull
        generation.pull = None
        cached = generation.cached_tokens // self.settings.block_size
        if pull is None:
            return
        try:
            await puller.bring(pull, generation.blocks[cached:])
        except BadHandoffError as error:
            self.break_down(str(error))
            return
        except PullError as error:
            print(f"KV load of {generation.id} failed: {error}", flush=True)  # noqa: T201 - the engine's log
            if self.settings.transfer is None or not self.settings.transfer.recompute:
                self._finish(generation, "error")
                return
        else:
            generation.external_tokens = len(generation.prompt) - generation.computed
            generation.computed = len(generation.prompt)
            self.meters.external_hits.inc(generation.external_tokens)
            self._remember(generation, cached, len(generation.prompt) // self.settings.block_size)
        self._pulling.remove(generation)
        self._running.append(generation)
        self._news.set()

    def _plan_step(self) -> float:
        """Decide what each running request computes now; returns how many seconds that takes."""
        budget = self.settings.max_num_batched_tokens
        decoding = sum(generation.computed == len(generation.tokens) for generation in self._running)
        budget -= decoding
        prefilled = 0
        for generation in self._running:
            missing = len(generation.tokens) - generation.computed
            share = max(0, min(missing, budget))
            budget -= share
            prefilled += share
            self._compute(generation, share)
        step_ms = prefilled * self.settings.prefill_ms_per_token
        if decoding:
            step_ms += self.settings.decode_ms_per_token
        return step_ms / 1e3

    def _compute(self, generation: Generation, count: int) -> None:
        """Compute the KV of the next `count` tokens, from the KV before them."""
        size = self.settings.block_size
        tokens = generation.tokens
        first, end = generation.computed // size, generation.computed + count
        while generation.computed < end:
            index = generation.computed // size
            block = generation.blocks[index]
            stop = min(end, (index + 1) * size)
            block.digests = extend(self._before(generation, index), tokens[index * size : stop])
            generation.computed = stop
        self._remember(generation, first, end // size)

    def _remember(self, generation: Generation, first: int, end: int) -> None:
        """Put the full blocks from number `first` to before `end` into the prefix cache, those of answers as well."""
        size, keys = self.settings.block_size, generation.keys
        for index in range(len(keys), end):
            keys.append(next_key(keys, generation.tokens[index * size : (index + 1) * size], generation.salt))
        for index in range(first, end):
            self._pool.remember(generation.blocks[index], keys[index])
        if self._tell is not None and self.settings.prefix_caching:
            self._events.stored(generation.tokens, keys, first=first, count=end - first, salt=generation.salt)

    def _before(self, generation: Generation, index: int) -> bytes:
        """The last digest before a block."""
        digests = generation.blocks[index - 1].digests if index else ()
        return digests[-1] if digests else b""

    def _finish_step(self, now_s: float) -> None:
        for generation in list(self._running):
            if generation.finished or generation.computed < len(generation.tokens):
                continue
            if generation.state is None:
                self._first(generation, now_s)
            self._put(generation, now_s)

    def _first(self, generation: Generation, now_s: float) -> None:
        """The prompt's KV is complete: the answer follows from it."""
        blocks = generation.blocks[: -(-len(generation.prompt) // self.settings.block_size)]
        digests = list(chain.from_iterable(block.digests for block in blocks))
        digests = digests[: -(-len(generation.prompt) // CHUNK)]
        generation.state = start_state(self.settings.served_name, digests, generation.sample)
        computed = len(generation.prompt) - generation.cached_tokens - generation.external_tokens
        self.meters.count_prompt(
            local_hit=generation.cached_tokens, external=generation.external_tokens, computed=computed
        )
        self.meters.ttft.observe(now_s - generation.arrived_s)

    def _put(self, generation: Generation, now_s: float) -> None:
        """Put out one token and make room for its KV."""
        state = generation.state
        if state is None:
            return
        may_end = not generation.ignore_eos and len(generation.output) >= generation.min_tokens
        token = token_at(state, may_end=may_end)
        generation.state = next_state(state, token)
        generation.output.append(token)
        generation.tokens.append(token)
        self.meters.generation_tokens.inc()
        if generation.last_put_s is not None:
            self.meters.token_time.observe(now_s - generation.last_put_s)
        generation.last_put_s = now_s
        if token == EOS and may_end:
            self._finish(generation, "stop", token)
        elif len(generation.output) >= generation.max_tokens:
            self._finish(generation, "length", token)
        elif self._grow(generation):
            generation.puts.put_nowait(Put(generation.answer, token))
            self._compute(generation, 1)

    def _grow(self, generation: Generation) -> bool:
        """Give a request the block of its next token; where none is free, put the youngest request back.

        False where the request itself was put back: it keeps its output and computes its KV again.
        """
        if len(generation.tokens) <= len(generation.blocks) * self.settings.block_size:
            return True
        while (more := self._pool.take(1)) is None:
            youngest = self._running[-1]
            self._preempt(youngest)
            if youngest is generation:
                generation.puts.put_nowait(Put(generation.answer, generation.output[-1]))
                return False
        generation.blocks += more
        return True

    def _preempt(self, generation: Generation) -> None:
        self.meters.preemptions.inc()
        self._running.remove(generation)
        self._release(generation)
        generation.computed = 0
        self._waiting.appendleft(generation)

    def _finish(self, generation: Generation, finish: Finish, token: int | None = None) -> None:
        generation.finished = True
        for queue in (self._running, self._pulling, self._waiting):
            if generation in queue:
                queue.remove(generation)
        if generation.pulling is not None and generation.pulling is not asyncio.current_task():
            generation.pulling.cancel()
        keep = generation.keep_for_remote and finish in {"stop", "length"} and self._leases is not None
        if keep and self._leases is not None:
            self._leases.keep(generation.id, generation.blocks)
        else:
            generation.keep_for_remote = False
            self._release(generation)
        self.meters.count_end(finish)
        self.meters.latency.observe(max(0.0, asyncio.get_running_loop().time() - generation.arrived_s))
        generation.puts.put_nowait(Put(generation.answer, token, finish))
        self._gauge()
        self._news.set()

    def _release(self, generation: Generation) -> None:
        self._pool.release(generation.blocks)
        generation.blocks = []

    def break_down(self, reason: str) -> None:
        """Die of a request, as vLLM's engine process does: everybody's requests fail."""
        self.dead = reason
        for generation in [*self._waiting, *self._pulling, *self._running]:
            self._finish(generation, "error")
        self._die(reason)

    def _gauge(self) -> None:
        self.meters.running.set(len(self._running))
        self.meters.waiting.set(len(self._waiting) + len(self._pulling))
        self.meters.cache_usage.set(1 - self._pool.free / self._pool.size)
