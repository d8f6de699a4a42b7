"""`Transfers`: KV from a prefill leg to a decode leg, after prefill or layer by layer while it goes on."""

from collections import deque
from collections.abc import Callable
from typing import Any

from hpcserve.latency import Chunk
from hpcserve.simulate.agenda import FLOW, Agenda
from hpcserve.simulate.deployment import Deployment
from hpcserve.simulate.flows import Moving, Network
from hpcserve.simulate.leg import Leg, Request

__all__ = ["Transfers"]

_TOGETHER_MS = 5.0
"""What a decode worker asks of one prefill worker within so long is asked in one step of its engine."""


class _Transfer:
    """One request's KV under way."""

    __slots__ = ("flows", "is_over", "leg", "line", "open_flows", "sizes")

    def __init__(self, leg: Leg) -> None:
        self.leg = leg
        self.flows: list[Moving] = []
        self.sizes: list[float] = []
        self.open_flows = 0
        self.is_over = False
        self.line: _Line | None = None
        """The one it stands in or is at the head of."""


class _Line:
    """Transfers that go one after another: those that began together at once, then the next ones."""

    __slots__ = ("batches", "began_ms")

    def __init__(self) -> None:
        self.batches: deque[list[_Transfer]] = deque()
        self.began_ms = 0.0
        """When the last batch began to wait or to move."""


class Transfers:
    """All of them. `arrived(leg)` is called when the last byte of a decode leg's KV is there.

    Between one prefill and one decode worker KV moves in the order in which it was asked for, as over one connection;
    what was asked for in one step moves side by side. So measured with vLLM's NIXL connector and UCX over TCP
    (docs/prediction.md). Different pairs share links.
    """

    def __init__(self, deployment: Deployment, agenda: Agenda, arrived: Callable[[Leg], None]) -> None:
        self.network = Network(self._flow_at)
        self._deployment = deployment
        self._agenda = agenda
        self._arrived = arrived
        self._of: dict[Request, _Transfer] = {}
        self._lines: dict[tuple[str, str], _Line] = {}
        """By prefill and decode worker; by decode worker alone where pulls go in turn."""
        self._steps: dict[Request, tuple[float, float]] = {}
        """For prefills that are sent as they are computed: the share of KV there at the step's end, and that end."""

    def overlaps(self, request: Request) -> bool:
        """Whether its KV is to be sent while prefill goes on."""
        overlap = self._deployment.overlap
        return overlap is not None and request.input_tokens >= overlap.least_tokens

    def start(self, leg: Leg) -> None:
        """There is room at the decode worker: the KV may come."""
        transfer = self._of[leg.request] = _Transfer(leg)
        # Never at once: the worker that asks for it is about to begin a step.
        self._agenda.at(self._agenda.now_ms + self._deployment.transfer_base_ms, FLOW, self._begin, transfer)

    def computing(self, request: Request, leg: Leg, chunk: Chunk, end_ms: float) -> None:
        """The prefill leg computes this chunk until then: so much more of its KV is there to send."""
        overlap = self._deployment.overlap
        if overlap is None:
            return
        there = chunk.before_tokens + chunk.new_tokens * (1.0 - 1.0 / overlap.layers)
        self._steps[request] = (there / leg.input_tokens, end_ms)
        if (transfer := self._of.get(request)) is not None and transfer.flows:
            self._hold(transfer)

    def prefilled(self, request: Request) -> None:
        """All of its KV is computed."""
        self._steps.pop(request, None)
        transfer = self._of.get(request)
        if transfer is not None and transfer.flows:
            flows = [flow for flow in transfer.flows if flow.ceiling is not None]
            self.network.hold_to(flows, [None] * len(flows), self._agenda.now_ms)
            self._close(transfer)

    def abort(self, request: Request) -> None:
        """Its KV is wanted no more."""
        self._steps.pop(request, None)
        transfer = self._of.pop(request, None)
        if transfer is not None:
            transfer.is_over = True
            for flow in transfer.flows:
                self.network.end(flow, self._agenda.now_ms)
            self._leave_line(transfer)

    def _begin(self, transfer: _Transfer, _: int) -> None:
        if transfer.is_over:
            return
        now_ms, route = self._agenda.now_ms, transfer.leg.request.route
        in_turn = self._deployment.pulls_in_turn
        prefill = "" if in_turn or route is None or route.prefill is None else route.prefill.id
        line = transfer.line = self._lines.setdefault((prefill, transfer.leg.worker), _Line())
        if line.batches and not in_turn and now_ms - line.began_ms <= _TOGETHER_MS:
            line.batches[-1].append(transfer)
        else:
            line.batches.append([transfer])
            line.began_ms = now_ms
        if len(line.batches) == 1:
            self._move(transfer)

    def _leave_line(self, transfer: _Transfer) -> None:
        """The next ones' turn comes, where this was the last of those whose turn it was."""
        line, transfer.line = transfer.line, None
        if line is None:
            return
        batch = next(batch for batch in line.batches if transfer in batch)
        batch.remove(transfer)
        if batch:
            return
        had_it = line.batches[0] is batch
        line.batches.remove(batch)
        if had_it and line.batches:
            for following in tuple(line.batches[0]):
                self._move(following)

    def _move(self, transfer: _Transfer) -> None:
        deployment, request = self._deployment, transfer.leg.request
        if deployment.kv_bytes is not None and request.route is not None and request.route.prefill is not None:
            decode = request.route.decode.id
            parts = deployment.flows[request.route.prefill.id, decode]
            kept = deployment.kv_bytes(request.input_tokens, deployment.ranks.get(decode, 1))
            transfer.sizes = [kept * part.share for part in parts]
            transfer.open_flows = len(parts)
            transfer.flows = self.network.start(
                transfer,
                ((part.links, size) for part, size in zip(parts, transfer.sizes, strict=True)),
                self._agenda.now_ms,
            )
            if request in self._steps:
                self._hold(transfer)
        self._close(transfer)

    def _hold(self, transfer: _Transfer) -> None:
        """Flows send no faster than the step that goes on makes KV."""
        share, end_ms = self._steps[transfer.leg.request]
        now_ms = self._agenda.now_ms
        ceilings = []
        for flow, size in zip(transfer.flows, transfer.sizes, strict=True):
            ready = share * size - (size - self.network.left_bytes(flow, now_ms))
            ceilings.append(max(0.0, ready / (end_ms - now_ms)) if end_ms > now_ms else 0.0)
        self.network.hold_to(transfer.flows, ceilings, now_ms)

    def _flow_at(self, at_ms: float, flow: Moving, version: int) -> None:
        self._agenda.at(at_ms, FLOW, self._flow_ends, flow, version)

    def _flow_ends(self, flow: Moving, version: int) -> None:
        if not self.network.is_due(flow, version):
            return
        transfer: Any = flow.whole
        self.network.end(flow, self._agenda.now_ms)
        transfer.open_flows -= 1
        self._close(transfer)

    def _close(self, transfer: _Transfer) -> None:
        """It is over when all its flows are through and there is nothing more to compute."""
        request = transfer.leg.request
        if not transfer.open_flows and not transfer.is_over and request not in self._steps:
            transfer.is_over = True
            del self._of[request]
            self._leave_line(transfer)
            self._arrived(transfer.leg)
