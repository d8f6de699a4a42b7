"""What one request is counted for while it is under way: at its workers, and on a link."""

from collections.abc import Callable

import msgspec

from hpcserve.nouns import Endpoint
from hpcserve.router.desk import Desk
from hpcserve.router.slots import LinkSlots, Slot
from hpcserve.routing import Load

__all__ = ["Account"]


class Account(msgspec.Struct):
    """Counts one request until `close`: one leg at a time, and one place on a link at most.

    It knows itself what it has counted, so whatever ends gives back that, and a second time nothing.
    """

    _desk: Desk
    load: Load | None = None
    """Of the worker that has the leg."""
    ahead: float = 0.0
    """Prompt tokens that the last such leg was to compute, and those before it in its worker's queue."""
    _computes: float = 0.0
    """Prompt tokens that the leg is counted for until its first token; 0: none, or no longer."""
    _hands_over: bool = False
    """Whether the leg is counted among those whose KV goes elsewhere."""
    _keeps: float = 0.0
    """Tokens whose KV the leg is counted for until its end."""
    _pulls: bool = False
    """Whether the leg is counted among those that wait for their KV."""
    _there: Load | None = None
    """Of the decode worker that KV of this request is promised to."""
    _slot: Slot | None = None
    _asked_s: float = 0.0
    """When the place was asked for."""

    # A place on the link that the KV comes by.

    def has_place(self, slots: LinkSlots, decode: Endpoint, granted: Callable[[], None]) -> bool:
        """Whether it has one on the link of this worker, or gets one at once; else `granted` is called later."""
        slot = self._slot
        if slot is not None and slot.decode == decode.id:
            return True
        if slot is not None:
            slot.give_back()
        self._slot = slot = slots.take(decode.id, granted)
        if slot.held:
            return True
        self._asked_s = self._desk.now_s()
        self.promise(decode)  # others see the queue before that link
        return False

    def place_granted(self) -> None:
        """The place that was waited for is there."""
        self._withdraw_promise()
        self._desk.metrics.queue["decode"].observe(self._desk.now_s() - self._asked_s)

    def give_back_place(self) -> None:
        """The KV is there or will not come, or the place is not waited for any more."""
        slot = self._slot
        if slot is not None:
            self._slot = None
            if self._there is not None:
                self._withdraw_promise()  # it was still waited for
            slot.give_back()

    def promise(self, decode: Endpoint) -> None:
        """KV will come to this worker, when the prefill leg that is sent next is over."""
        self._there = there = self._desk.roster.load_of(decode)
        there.coming += 1

    def _withdraw_promise(self) -> None:
        there = self._there
        if there is not None:
            self._there = None
            there.coming -= 1

    # The leg.

    def leg_sent(self, endpoint: Endpoint, *, computes: float, keeps: float, pulls: bool) -> None:
        """A leg goes to this worker.

        `computes`: prompt tokens before its first token; `keeps`: tokens whose KV it has at its end, 0 where that goes
        elsewhere; `pulls`: whether it waits for KV.
        """
        self.load = load = self._desk.roster.load_of(endpoint)
        load.in_flight += 1
        if computes:
            self._computes = computes
            self.ahead = computes + (load.prefill_tokens or 0.0)
            load.waits(computes)
        if keeps:
            self._keeps = keeps
            load.kv_tokens += keeps
        else:
            self._hands_over = True
            load.prefills += 1
        if pulls:
            self._pulls = True
            load.transfers += 1
            if self._slot is not None:
                self._slot.pulling = True

    def first_token(self) -> None:
        """The leg has computed its prompt, or has its KV: then nothing comes by the link any more."""
        load = self.load
        if load is None:
            return
        if self._computes:
            load.computed(self._computes)
            self._computes = 0.0
        if self._pulls:
            load.transfers -= 1
            self._pulls = False
            if self._slot is not None:
                self.give_back_place()

    def leg_over(self) -> None:
        """The leg has ended, however it did."""
        load = self.load
        if load is None:
            return
        load.in_flight -= 1
        load.kv_tokens -= self._keeps
        self._keeps = 0.0
        if self._hands_over:
            load.prefills -= 1
            self._hands_over = False
        if self._there is not None:
            self._withdraw_promise()
        if self._computes or self._pulls:
            self.first_token()  # last, as who gets its place on the link chooses at once
        self.load = None

    def close(self) -> None:
        """The request is at its end: nothing stays counted."""
        self.leg_over()
        if self._slot is not None:
            self.give_back_place()
