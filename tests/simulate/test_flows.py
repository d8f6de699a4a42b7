import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.fabric import Link
from hpcserve.simulate.agenda import FLOW, Agenda
from hpcserve.simulate.flows import Moving, Network


class Yard:
    """A network with a clock."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.network = Network(lambda at_ms, flow, version: self.agenda.at(at_ms, FLOW, self._due, flow, version))
        self.ends: dict[str, float] = {}
        self.over: set[str] = set()

    def start(self, name: str, links: tuple[Link, ...], size_mb: float) -> Moving:
        return self.network.start(name, [(links, size_mb * 1e6)], self.agenda.now_ms)[0]

    def start_at(self, at_ms: float, name: str, links: tuple[Link, ...], size_mb: float) -> None:
        def begin(_: None, __: int) -> None:
            self.start(name, links, size_mb)

        self.agenda.at(at_ms, FLOW, begin, None)

    def run(self) -> dict[str, float]:
        while self.agenda.next():
            limits = self.network.limits_gb_per_s()
            self.over |= {link for link, rate in self.network.gb_per_s().items() if rate > limits[link] * (1 + 1e-9)}
        return self.ends

    def _due(self, flow: Moving, version: int) -> None:
        if self.network.is_due(flow, version):
            self.network.end(flow, self.agenda.now_ms)
            assert flow.whole not in self.ends
            self.ends[str(flow.whole)] = self.agenda.now_ms


def link(name: str, gb_per_s: float) -> Link:
    return Link(name, gb_per_s, "made")


def test_a_flow_that_is_held_up_elsewhere_leaves_its_share_to_the_other() -> None:
    """Max-min on an uplink of 1 GB/s: a port of 0.2 GB/s takes 0.2, so the other gets 0.8: 100 MB in 125 ms.

    The slow one sends 0.2 all along: 500 ms.
    """
    yard, uplink = Yard(), link("uplink", 1.0)
    yard.start("slow", (link("port", 0.2), uplink), 100.0)
    yard.start("fast", (link("other", 5.0), uplink), 100.0)
    assert yard.run() == {"fast": pytest.approx(125.0), "slow": pytest.approx(500.0)}
    use = {one.name: one for one in yard.network.use(500.0)}
    assert use["uplink"].moved_bytes == pytest.approx(200e6)
    assert use["uplink"].utilisation == pytest.approx(0.4)
    assert use["port"].utilisation == pytest.approx(1.0)


def test_shares_change_as_flows_come_and_go() -> None:
    """Alone for 50 ms (50 MB), then half: the other 50 MB take 100; the later one has 50 MB left then, alone again."""
    yard, uplink = Yard(), link("uplink", 1.0)
    yard.start_at(0.0, "first", (uplink,), 100.0)
    yard.start_at(50.0, "second", (uplink,), 100.0)
    assert yard.run() == {"first": pytest.approx(150.0), "second": pytest.approx(200.0)}


def test_flows_that_share_nothing_do_not_touch() -> None:
    yard = Yard()
    yard.start("here", (link("a", 1.0),), 10.0)
    yard.start("there", (link("b", 2.0),), 10.0)
    assert yard.run() == {"here": pytest.approx(10.0), "there": pytest.approx(5.0)}


def test_a_flow_sends_no_faster_than_it_has_bytes() -> None:
    yard, uplink = Yard(), link("uplink", 1.0)
    held = yard.start("held", (uplink,), 100.0)
    yard.network.hold_to([held], [0.0], 0.0)
    yard.start("free", (uplink,), 20.0)
    yard.agenda.at(40.0, FLOW, lambda _, __: yard.network.hold_to([held], [1e5], 40.0), None)
    yard.agenda.at(140.0, FLOW, lambda _, __: yard.network.hold_to([held], [None], 140.0), None)
    # free: 20 MB alone in 20 ms; held: nothing until 40, 10 MB until 140, then 90 MB alone
    assert yard.run() == {"free": pytest.approx(20.0), "held": pytest.approx(230.0)}


@settings(max_examples=100, deadline=None)
@given(
    rates=st.lists(st.floats(0.1, 10.0), min_size=4, max_size=4),
    flows=st.lists(
        st.tuples(st.floats(0, 100), st.floats(0.5, 200.0), st.sets(st.integers(0, 3), min_size=1)),
        min_size=1,
        max_size=8,
    ),
)
def test_no_link_carries_more_than_it_can_and_every_byte_arrives(
    rates: list[float], flows: list[tuple[float, float, set[int]]]
) -> None:
    yard = Yard()
    links = [link(str(number), rate) for number, rate in enumerate(rates)]
    for number, (at_ms, size_mb, over) in enumerate(flows):
        yard.start_at(at_ms, str(number), tuple(links[one] for one in sorted(over)), size_mb)
    ends = yard.run()
    assert not yard.over
    assert len(ends) == len(flows)
    for number, (at_ms, size_mb, over) in enumerate(flows):
        least_ms = size_mb / min(rates[one] for one in over)
        assert ends[str(number)] >= at_ms + least_ms * (1 - 1e-9)
    for use in yard.network.use(max(ends.values())):
        crossed_mb = sum(size_mb for _, size_mb, over in flows if int(use.name) in over)
        assert use.moved_bytes == pytest.approx(crossed_mb * 1e6, rel=1e-6)
        assert use.utilisation <= 1 + 1e-9
