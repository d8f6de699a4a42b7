"""What no seating can do better than, from the room in the fabric's parts and the least price of a pair in each.

Two workers meet in the smallest part that holds both. The workers together fit no part that has too few GPUs, so that
some prefill and some decode worker meet in one that is large enough: the slowest path costs no less than the cheapest
pair that meets there. And in parts of few GPUs only so many pairs can meet; the others cost what pairs of larger parts
do at least.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from hpcserve.nouns import Role
from hpcserve.placement.bound_rails import Priced, least_traffic_on_rails
from hpcserve.placement.candidate import Candidate, Seat, Used
from hpcserve.placement.demand import Wanted
from hpcserve.placement.fast_ports import fastest_for_all
from hpcserve.placement.ground import Ground
from hpcserve.placement.price import ACTIVATIONS, PairPrice, Prices

__all__ = ["Bound", "bound_of"]

Kind = tuple[int, str | None]
"""Ranks and partition of a worker."""

_MOST_PAIRS = 6_000
"""Pairs of seats that are priced for the bound at most: a part of a second. Sites of nodes all unlike need more."""

_MOST_BETWEEN = 300
"""The same of a stage and the one before it, which count after all paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Lower bounds of a seating's cost."""

    slowest_ns: int
    traffic_ns: int
    between_ns: int
    """Of any one stage and the one before it."""
    busiest_ns: int
    hops: int
    nodes: int
    pair_traffic_ns: int
    """Of any one pair."""
    pair_hops: int
    of_paths: bool
    """Whether those of paths are more than nothing known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfPairs:
    """Lower bounds of the pairs of one stage, as `Bound` has them."""

    slowest_ns: int
    traffic_ns: int
    busiest_ns: int
    hops: int
    pair_traffic_ns: int
    pair_hops: int
    known: bool


@dataclass(slots=True)
class _Least:
    """Of pairs that meet in parts of one height."""

    slowest_ns: int
    traffic_ns: int
    hops: int

    def take(self, price: PairPrice) -> None:
        self.slowest_ns = min(self.slowest_ns, price.slowest_ns)
        self.traffic_ns = min(self.traffic_ns, price.traffic_ns)
        self.hops = min(self.hops, price.hops)


def bound_of(workers: Sequence[Wanted], ground: Ground, prices: Prices) -> Bound:
    """The bound for these workers' stages on this ground.

    Only stages of one number meet, so that those of each number are bound as if the others were not there.
    """
    bounds: list[_OfPairs] = []
    made: dict[int, _OfPairs] = {}
    for stage in sorted({worker.stage for worker in workers}):
        alike = prices.alike[stage] if stage < len(prices.alike) else stage
        if alike not in made:
            made[alike] = _bound_of_stage([one for one in workers if one.stage == stage], stage, ground, prices)
        bounds.append(made[alike])
    return Bound(
        slowest_ns=max(one.slowest_ns for one in bounds),
        traffic_ns=sum(one.traffic_ns for one in bounds),
        between_ns=_least_between(workers, ground, prices),
        busiest_ns=max(one.busiest_ns for one in bounds),
        hops=sum(one.hops for one in bounds),
        nodes=sum(
            _fewest_nodes(
                [worker for worker in workers if worker.partition == partition],
                [candidate for candidate in ground.candidates if candidate.partition == partition],
            )
            for partition in {worker.partition for worker in workers}
        ),
        pair_traffic_ns=min(one.pair_traffic_ns for one in bounds),
        pair_hops=min(one.pair_hops for one in bounds),
        of_paths=all(one.known for one in bounds),
    )


def _bound_of_stage(workers: Sequence[Wanted], stage: int, ground: Ground, prices: Prices) -> _OfPairs:
    sizes = {role: [worker.tensor_parallel for worker in workers if worker.role == role] for role in Role}
    prefill, decode = sizes[Role.PREFILL], sizes[Role.DECODE]
    pairs = len(prefill) * len(decode)
    priced: list[Priced] | None = []
    if pairs:
        kinds = _kinds(workers, Role.PREFILL), _kinds(workers, Role.DECODE)
        priced = _every_price(*kinds, stage, ground, prices)
    rough = priced is None
    least = _least_roughly(prefill, decode, stage, ground, prices) if rough else _least_by_height(priced or (), ground)
    if not least:
        return _OfPairs(
            slowest_ns=0,
            traffic_ns=0,
            busiest_ns=0,
            hops=0,
            pair_traffic_ns=0,
            pair_hops=0,
            known=not pairs,
        )
    needed = sum(prefill) + sum(decode)
    room: dict[int, int] = {}
    for part in ground.parts():
        room[part.height] = max(room.get(part.height, 0), ground.gpus_in(part))
    room[ground.top] = sum(len(candidate.gpus) for candidate in ground.candidates)
    heights = sorted(room)
    large = [height for height in heights if room[height] >= needed]
    most = {
        height: min(pairs, _most_pairs(prefill, decode, max(room[low] for low in heights if low <= height)))
        for height in heights
    }
    slowest_ns = max(
        min((least[height].slowest_ns for height in large if height in least), default=0),
        _slowest_port(workers, stage, ground, prices),
    )
    return _OfPairs(
        slowest_ns=slowest_ns,
        busiest_ns=max(slowest_ns, _busiest_port(prefill, decode, ground, priced or ())),
        traffic_ns=max(
            _least_sum({height: one.traffic_ns for height, one in least.items()}, most, pairs),
            least_traffic_on_rails(prefill, decode, ground, priced or ()),
        ),
        hops=_least_sum({height: one.hops for height, one in least.items()}, most, pairs),
        pair_traffic_ns=min(one.traffic_ns for one in least.values()),
        pair_hops=min(one.hops for one in least.values()),
        known=True,
    )


def _least_between(workers: Sequence[Wanted], ground: Ground, prices: Prices) -> int:
    """What a stage and the one before it need at least: the cheapest of all pairs of seats, where they are few.

    Where there are many, what the fastest link of the fabric would need.
    """
    fastest = ground.fabric.fastest
    least: list[int] = []
    for kind in {(worker.tensor_parallel, worker.partition) for worker in workers if worker.stage}:
        ranks, _ = kind
        pairs = list(islice(_every_pair([kind], [kind], ground), _MOST_BETWEEN + 1))
        if ground.is_rough or len(pairs) > _MOST_BETWEEN:
            least.append(round(ACTIVATIONS / ranks / max(fastest.inside, fastest.by_nic)))
        else:
            least += [price.between_ns for pair in pairs if (price := prices.between(*pair)) is not None]
    return min(least, default=0)


def _kinds(workers: Sequence[Wanted], role: Role) -> list[Kind]:
    """Ranks and partition of the workers of a role, each once."""
    found = {(worker.tensor_parallel, worker.partition) for worker in workers if worker.role == role}
    return sorted(found, key=lambda kind: (kind[0], kind[1] or ""))


def _every_price(
    prefill: Sequence[Kind], decode: Sequence[Kind], stage: int, ground: Ground, prices: Prices
) -> list[Priced] | None:
    """Every pair of seats that can be told apart and may be; None where there are too many to look at."""
    priced: list[Priced] = []
    if ground.is_rough:
        return None
    for number, (seat, other) in enumerate(_every_pair(prefill, decode, ground)):
        if number > _MOST_PAIRS:
            return None
        price = prices(seat, other, stage)
        if price is not None:
            priced.append((seat, other, price))
    return priced


def _least_by_height(priced: Sequence[Priced], ground: Ground) -> dict[int, _Least]:
    """The least of all pairs by the height of the part where they meet."""
    least: dict[int, _Least] = {}
    for seat, other, price in priced:
        height = ground.height(seat.node, other.node)
        least.setdefault(height, _Least(price.slowest_ns, price.traffic_ns, price.hops)).take(price)
    return least


def _slowest_port(workers: Sequence[Wanted], stage: int, ground: Ground, prices: Prices) -> int:
    """What the slowest NIC needs that some worker must have, where all workers have paths out of their nodes.

    0 where they need have none, or where there may be faster ways: by an NVLink domain, or as a pair was measured.
    """
    prefill, decode = (
        [worker.tensor_parallel for worker in workers if worker.role == role] for role in (Role.PREFILL, Role.DECODE)
    )
    gpus = max(len(candidate.gpus) for candidate in ground.candidates)
    alone = sum(prefill) + min(decode) > gpus and sum(decode) + min(prefill) > gpus
    domains = any(ground.fabric.domain_of(candidate.name) for candidate in ground.candidates)
    if not alone or domains or ground.fabric.has_measured_paths:
        return 0
    rate = fastest_for_all(workers, ground)
    if not rate:
        return 0
    least = min(prices.moved(*ranks, stage).least_of_a_rank for ranks in product(set(prefill), set(decode)))
    return int(least / rate)


def _busiest_port(prefill: Sequence[int], decode: Sequence[int], ground: Ground, priced: Sequence[Priced]) -> int:
    """What some worker's NIC needs at least: all pairs of a worker but those inside its node pass the same NIC.

    0 where there are NVLink domains, by which they may leave another way.
    """
    apart = [price for seat, other, price in priced if seat.node != other.node]
    if not apart or any(ground.fabric.domain_of(candidate.name) for candidate in ground.candidates):
        return 0
    gpus = max(len(candidate.gpus) for candidate in ground.candidates)
    out = len(decode) - min(len(decode), (gpus - min(prefill)) // min(decode))
    into = len(prefill) - min(len(prefill), (gpus - min(decode)) // min(prefill))
    return max(out * min(price.leaving_ns for price in apart), into * min(price.arriving_ns for price in apart))


def _least_roughly(
    prefill: Sequence[int], decode: Sequence[int], stage: int, ground: Ground, prices: Prices
) -> dict[int, _Least]:
    """The same where nodes are too unlike to look at: what the fastest links of the fabric would need.

    Between nodes KV leaves by one NIC and arrives by another; where there are NVLink domains it may pass one instead.
    """
    fastest = ground.fabric.fastest
    sizes = [prices.moved(*ranks, stage) for ranks in product(set(prefill), set(decode))]
    rank, whole = min(size.of_a_rank for size in sizes), min(size.whole for size in sizes)
    links = 2 * max(*prefill, *decode)  # each link's time is rounded to a nanosecond
    inside = _Least(int(rank / fastest.inside) - 1, int(whole / fastest.inside) - links, 0)
    by_nic = _Least(int(rank / fastest.by_nic) - 1, int(2 * whole / fastest.by_nic) - links, 0)
    if any(ground.fabric.domain_of(candidate.name) for candidate in ground.candidates):
        by_nic = _Least(min(inside.slowest_ns, by_nic.slowest_ns), min(inside.traffic_ns, by_nic.traffic_ns), 0)
    return {height: by_nic if height else inside for height in range(ground.top + 1)}


def _every_pair(prefill: Sequence[Kind], decode: Sequence[Kind], ground: Ground) -> Iterator[tuple[Seat, Seat]]:
    """Every pair of a prefill and a decode seat, those that are alike once.

    Where all workers have equally many ranks, rails may change places: the cheapest pair of all is that of equal rails.
    """
    equal = len({ranks for ranks, _ in (*prefill, *decode)}) == 1
    for node in ground.openings({}):
        for seat in _seats(prefill, node, {}, ground, rails_alike=equal):
            used = {node: frozenset(seat.gpus)}
            for other_node in ground.openings(used):
                for other in _seats(decode, other_node, used, ground, rails_alike=equal):
                    yield seat, other


def _seats(kinds: Sequence[Kind], node: int, used: Used, ground: Ground, *, rails_alike: bool) -> Iterator[Seat]:
    """Every seat of such workers on a node of their partition."""
    for ranks, partition in kinds:
        if ground.candidates[node].partition == partition:
            yield from ground.seats(node, used, ranks, rails_alike=rails_alike)


def _most_pairs(prefill: Sequence[int], decode: Sequence[int], room: int) -> int:
    """How many pairs can meet in parts of `room` GPUs: as many for each GPU as in the part that has most for its own.

    However the workers are spread over parts, each part's pairs are at most that many times the GPUs used there.
    """
    narrow, thin = min(prefill), min(decode)
    best_pairs, best_gpus = 0, 1
    for count in range(1, len(prefill) + 1):
        others = min(len(decode), (room - count * narrow) // thin)
        if others > 0:
            found, gpus = count * others, count * narrow + others * thin
            if found * best_gpus > best_pairs * gpus:
                best_pairs, best_gpus = found, gpus
    return (sum(prefill) + sum(decode)) * best_pairs // best_gpus


def _least_sum(least: Mapping[int, int], most: Mapping[int, int], pairs: int) -> int:
    """The least sum over all pairs, where at most `most[height]` of them meet at that height or below.

    Greedy: the cheapest height takes as many as the limits of it and of all above it leave; the limits are nested.
    """
    taken: dict[int, int] = {}
    total = 0
    for height in sorted(least, key=lambda one: least[one]):
        left = min(
            [pairs - sum(taken.values())]
            + [
                limit - sum(count for low, count in taken.items() if low <= above)
                for above, limit in most.items()
                if above >= height and above < max(least)
            ]
        )
        taken[height] = max(0, left)
        total += taken[height] * least[height]
    return total


def _fewest_nodes(workers: Sequence[Wanted], candidates: Sequence[Candidate]) -> int:
    """As few nodes as have the GPUs, the largest first; of workers of one size whole ones count only."""
    sizes = {worker.tensor_parallel for worker in workers}
    size = sizes.pop() if len(sizes) == 1 else 1
    left = sum(worker.tensor_parallel for worker in workers)
    rooms = sorted((len(candidate.gpus) // size * size for candidate in candidates), reverse=True)
    for count, room in enumerate(rooms, start=1):
        left -= room
        if left <= 0:
            return count
    return len(rooms)
