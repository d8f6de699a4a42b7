"""The search behind a choice: prefill workers first, then the decode workers of the best two."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import TypeVar

from hpcserve.nouns import Endpoint, Role
from hpcserve.routing.draw import taken, window
from hpcserve.routing.estimate import (
    DELAY_SHARE,
    Demand,
    Estimate,
    room_wait_ms,
    split_estimate,
    stream_held_up_ms,
    uncached_tokens,
    whole_estimate,
)
from hpcserve.routing.load import Load, Typical
from hpcserve.routing.route import Preferences, Route
from hpcserve.routing.table import MOST_LOOKED_AT, PrefillRow, Table

__all__ = ["Search"]

T = TypeVar("T")

_IDLE = Load()
_NEAREST_KEPT = MOST_LOOKED_AT // 2
"""Of many decode workers the nearest are always looked at."""
_MOST_HOLDERS = 8
"""Of those that hold some of a prompt, the ones that hold most."""
_STEP_1, _STEP_2 = 0.7548776662466927, 0.5698402909980532
"""Turns times these, without their whole part, fill the square evenly (Roberts' R2 sequence): chance without a dice."""


class Search:
    """One choice. Loops are written out: a call for each worker would cost more than all the rest of a request.

    In the loops stand the formulas of `estimate`, without what all candidates have in common; a test holds them equal.
    """

    __slots__ = ("_avoid", "_demand", "_loads", "_model", "_preferences", "_table", "_turn", "_typical")

    def __init__(
        self,
        table: Table,
        loads: Mapping[str, Load],
        typical: Typical,
        *,
        model: str | None,
        avoid: AbstractSet[str],
        turn: int,
        demand: Demand,
        preferences: Preferences,
    ) -> None:
        self._table = table
        self._loads = loads
        self._typical = typical
        self._model = model if len(table.models) > 1 else None  # one name only, and it was looked at
        self._avoid = avoid
        self._turn = turn
        self._demand = demand
        self._preferences = preferences

    def split(self) -> Route | None:
        """The best pair that is found; None where there is none."""
        rows = self._rows()
        if not rows:
            return None
        firsts, bounds = self._bounds(rows)
        temperature = self._preferences.temperature
        place = taken(bounds, self._turn, temperature, _STEP_1)
        row = rows[place]
        cost_ms, entry = self._decode(row)
        if len(rows) > 1 and not temperature:
            best_ms = firsts[place] + cost_ms
            bounds[place] = inf
            second = bounds.index(min(bounds))
            if bounds[second] < best_ms:
                cost_ms, other = self._decode(rows[second])
                if firsts[second] + cost_ms < best_ms:
                    row, entry = rows[second], other
        prefill, (decode, path_ms) = row.prefill, entry
        estimate = split_estimate(
            self._demand,
            self._typical,
            prefill=(prefill.id, self._loads.get(prefill.id, _IDLE)),
            decode=(decode.id, self._loads.get(decode.id, _IDLE)),
            path_ms=path_ms,
            overlap_weight=self._preferences.overlap_weight,
        )
        return Route(prefill=prefill, decode=decode, transfer_ms=path_ms, estimate=estimate)

    def _rows(self) -> Sequence[PrefillRow]:
        """Prefill workers that are looked at: each may be taken, and has a partner that may."""
        every, avoid, model, overlap = self._table.rows, self._avoid, self._model, self._demand.overlap
        if avoid or model is not None:
            every = tuple(
                row
                for row in every
                if row.prefill.id not in avoid
                and (model is None or row.prefill.model == model)
                and not (avoid and all(decode.id in avoid for decode, _ in row.decodes))
            )
        rows = window(every, self._turn)
        if overlap and len(rows) < len(every):
            table = self._table
            row_of = table.row_of if every is table.rows else {row.prefill.id: row for row in every}
            rows = self._with_holders(rows, [(worker, row_of[worker]) for worker in overlap if worker in row_of])
        return rows

    def _with_holders(self, looked_at: Sequence[T], holders: Sequence[tuple[str, T]]) -> Sequence[T]:
        """Of many those whose turn it is, and those that hold most of the prompt, wherever they stand; each once."""
        overlap, there = self._demand.overlap, set(map(id, looked_at))
        most = sorted(holders, key=lambda holder: overlap[holder[0]], reverse=True)[:_MOST_HOLDERS]
        return (*looked_at, *(each for _, each in most if id(each) not in there))

    def _bounds(self, rows: Sequence[PrefillRow]) -> tuple[list[float], list[float]]:
        """Queue + prefill of each + whom that holds up; and what each costs at least: that + its nearest path, idle."""
        typical, demand, get = self._typical, self._demand, self._loads.get
        overlap, weight, tokens = demand.overlap, self._preferences.overlap_weight, demand.prompt_tokens
        alone_ms, per_token = typical.prefill_ms, typical.prefill_ms / typical.prompt_tokens
        whole_ms = own_ms = tokens * per_token
        scale = (self._least_moved() if overlap else tokens) / typical.prompt_tokens
        firsts, bounds = [], []
        for row in rows:
            name = row.prefill.id
            load = get(name, _IDLE)
            if overlap:  # `uncached_tokens`, written out
                held = overlap.get(name)
                own_ms = max(tokens - weight * held, min(tokens, 1.0)) * per_token if held else whole_ms
            waiting = load.prefill_tokens
            first = own_ms + (load.in_flight * alone_ms if waiting is None else waiting * per_token)
            decoding = load.in_flight - load.prefills - load.transfers
            if decoding > 0:
                first += own_ms * DELAY_SHARE * decoding
            firsts.append(first)
            bounds.append(first + row.nearest_ms * scale)
        return firsts, bounds

    def _least_moved(self) -> float:
        """The fewest tokens whose KV a decode worker would have to pull."""
        tokens, most = self._demand.prompt_tokens, max(self._demand.overlap.values())
        return max(tokens - self._preferences.overlap_weight * most, min(tokens, 1.0))

    def _decode(self, row: PrefillRow) -> tuple[float, tuple[Endpoint, float]]:
        """The best decode worker of a row, and the pair's cost after the prefill."""
        typical, demand, avoid, get = self._typical, self._demand, self._avoid, self._loads.get
        overlap, weight, tokens = demand.overlap, self._preferences.overlap_weight, demand.prompt_tokens
        step_ms, per_prompt = typical.decode_step_ms, typical.prompt_tokens
        kept_tokens = tokens + demand.answer_tokens
        moved = scale = tokens / per_prompt
        entries: Sequence[tuple[Endpoint, float]] = row.decodes
        if avoid:
            entries = tuple(entry for entry in entries if entry[0].id not in avoid)
        entries = window(entries, self._turn, kept=_NEAREST_KEPT)
        costs = []
        for decode, path_ms in entries:
            name = decode.id
            load = get(name, _IDLE)
            if overlap:  # `uncached_tokens`, written out
                held = overlap.get(name)
                moved = max(tokens - weight * held, min(tokens, 1.0)) / per_prompt if held else scale
            cost = (load.in_flight - load.prefills) * step_ms
            cost += path_ms * moved * (load.transfers + load.coming + 1)
            room = load.kv_room_tokens
            if room is not None and load.kv_tokens + kept_tokens > room:
                cost += room_wait_ms(load, kept_tokens, typical)
            costs.append(cost)
        place = taken(costs, self._turn, self._preferences.temperature, _STEP_2)
        return costs[place], entries[place]

    def whole(self, reason: str) -> Route | None:
        """A decode or aggregated worker; a prefill worker where there is none.

        While no pair is proved, prefill workers have nothing else to do: then the least cost of all.
        """
        table = self._table
        found = self._cheapest_whole(0, table.first_choice)
        if found is not None and self._preferences.borrow_when_cheaper and table.rows:
            found = self._cheaper_borrowed(found)
        elif found is None or not table.rows:
            other = self._cheapest_whole(table.first_choice, len(table.whole))
            if found is None or (other is not None and other[0] < found[0]):
                found = other
        return None if found is None else self._whole_route(found[1], reason)

    def _cheaper_borrowed(self, found: tuple[float, Endpoint] | None) -> tuple[float, Endpoint] | None:
        """A prefill worker for both phases, where that costs less than what was found."""
        table = self._table
        other = self._cheapest_whole(table.first_choice, len(table.whole))
        if other is None or (found is not None and other[0] + self._held_up_ms(other[1]) >= found[0]):
            return found
        return other

    def _held_up_ms(self, worker: Endpoint) -> float:
        """What a stream there waits for prompts of others that come later."""
        table = self._table
        if worker.role != Role.PREFILL or not table.rows:
            return 0.0
        workers = len(table.whole) - table.first_choice
        return stream_held_up_ms(self._demand, self._typical, workers=workers)

    def _whole_route(self, worker: Endpoint, reason: str) -> Route:
        estimate = whole_estimate(
            self._demand,
            self._typical,
            worker=(worker.id, self._loads.get(worker.id, _IDLE)),
            overlap_weight=self._preferences.overlap_weight,
            held_up_ms=self._held_up_ms(worker),
        )
        return Route(prefill=None, decode=worker, reason=reason, estimate=estimate)

    def _cheapest_whole(self, start: int, end: int) -> tuple[float, Endpoint] | None:
        """Of the workers that stand from `start` to `end` in the table's `whole`: the least cost, and whose it is."""
        typical, demand, avoid, model, get = self._typical, self._demand, self._avoid, self._model, self._loads.get
        overlap, weight, per_token = demand.overlap, self._preferences.overlap_weight, typical.prefill_ms_per_token
        kept_tokens = demand.prompt_tokens + demand.answer_tokens
        step_ms, whole_ms = typical.decode_step_ms, demand.prompt_tokens * per_token
        workers: Sequence[Endpoint] = self._table.whole[start:end]
        if avoid or model is not None:
            workers = self._may_serve(workers)
        if not workers:
            return None
        entries = window(workers, self._turn)
        if overlap and len(entries) < len(workers):
            entries = self._with_holders(entries, self._holders(start, end))
        costs = []
        for worker in entries:
            name = worker.id
            load = get(name, _IDLE)
            own_ms = uncached_tokens(demand, name, weight) * per_token if name in overlap else whole_ms
            serving = load.in_flight - load.prefills
            decoding = serving - load.transfers
            cost = serving * step_ms + own_ms * (1 + DELAY_SHARE * decoding if decoding > 0 else 1)
            if load.prefill_tokens:
                cost += load.prefill_tokens * per_token
            room = load.kv_room_tokens
            if room is not None and load.kv_tokens + kept_tokens > room:
                cost += room_wait_ms(load, kept_tokens, typical)
            costs.append(cost)
        place = taken(costs, self._turn, self._preferences.temperature, _STEP_1)
        return costs[place], entries[place]

    def _may_serve(self, workers: Sequence[Endpoint]) -> Sequence[Endpoint]:
        avoid, model = self._avoid, self._model
        return [each for each in workers if each.id not in avoid and (model is None or each.model == model)]

    def _holders(self, start: int, end: int) -> Sequence[tuple[str, Endpoint]]:
        whole, place_of = self._table.whole, self._table.place_of
        places = [place_of.get(worker, -1) for worker in self._demand.overlap]
        holders: Sequence[Endpoint] = [whole[place] for place in places if start <= place < end]
        if self._avoid or self._model is not None:
            holders = self._may_serve(holders)
        return [(each.id, each) for each in holders]

    def whole_if_cheaper(self, split: Route) -> Route | None:
        """Both phases on one decode worker, or on any if pools borrow, where that costs less than the best pair."""
        found = self._cheapest_whole(0, self._table.first_choice)
        if self._preferences.borrow_when_cheaper:
            found = self._cheaper_borrowed(found)
        if found is None:
            return None
        worker = found[1]
        route = self._whole_route(worker, "")
        if route.estimate.cost_ms >= split.estimate.cost_ms:
            return None
        reason = self._why_cheaper(worker, route.estimate.cost_ms, split.estimate)
        return Route(prefill=None, decode=worker, reason=reason, estimate=route.estimate)

    def _why_cheaper(self, worker: Endpoint, cost_ms: float, split: Estimate) -> str:
        """What of the pair's cost tipped it: without that the pair would have cost no more.

        A prefill worker saves a handoff and a place among those who decode: then it is the larger of the two.
        """
        if worker.role == Role.PREFILL:
            return "decode_load" if split.room_ms + split.others_ms > split.transfer_ms else "slow_path"
        weight, tokens = self._preferences.overlap_weight, self._demand.prompt_tokens
        held = uncached_tokens(self._demand, worker.id, weight) < tokens
        if held and self._without_overlap(worker).cost_ms >= split.cost_ms:
            return "prefix_at_decode"
        if cost_ms >= split.cost_ms - split.queue_ms:
            return "prefill_queue"
        if cost_ms >= split.cost_ms - (split.transfer_ms - self._typical.handoff_ms):
            return "slow_path"
        return "short_prompt"

    def _without_overlap(self, worker: Endpoint) -> Estimate:
        demand = Demand(prompt_tokens=self._demand.prompt_tokens, answer_tokens=self._demand.answer_tokens)
        return whole_estimate(
            demand, self._typical, worker=(worker.id, self._loads.get(worker.id, _IDLE)), overlap_weight=0.0
        )
