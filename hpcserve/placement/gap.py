"""What is known of an assignment beside its paths: how far from the best it can be, and whether it can be started."""

from hpcserve.engines import adapter_for
from hpcserve.nouns import Assignment, Plan, Service
from hpcserve.placement.search import Found
from hpcserve.units import ms_text

__all__ = ["assignment_of", "start_words", "words_of"]

_NS_PER_MS = 1e6


def assignment_of(found: Found) -> Assignment:
    """What the search found against what no assignment can do better than; where it is the best, they are the same."""
    _, slowest_ns, traffic_ns, _, _, nodes, _, _ = found.cost
    bound = found.bound
    return Assignment(
        best=found.exact,
        slowest_ms=slowest_ns / _NS_PER_MS or None,
        slowest_at_least_ms=(slowest_ns if found.exact else bound.slowest_ns) / _NS_PER_MS or None,
        traffic_ms=traffic_ns / _NS_PER_MS or None,
        traffic_at_least_ms=(traffic_ns if found.exact else bound.traffic_ns) / _NS_PER_MS or None,
        nodes=nodes,
        nodes_at_least=nodes if found.exact else bound.nodes,
    )


def words_of(assignment: Assignment) -> tuple[str, ...]:
    """What is known of an assignment that was not proven to be the best; nothing of one that was."""
    if assignment.best:
        return ()
    least = assignment.nodes_at_least
    if assignment.slowest_ms is None or assignment.traffic_ms is None:
        nodes = "as few as can be" if assignment.nodes <= least else f"{least} at least"
        return (f"not every assignment was looked at; this one uses {assignment.nodes} nodes, {nodes}",)
    path = _above(assignment.slowest_ms, assignment.slowest_at_least_ms)
    traffic = _above(assignment.traffic_ms, assignment.traffic_at_least_ms)
    if path == traffic == 0:
        said = (
            "no assignment has a faster slowest path or less traffic; not every one was looked at for how evenly it "
            f"loads the links ({assignment.nodes} nodes, {least} at least)"
        )
    else:
        slowest_ms, traffic_ms = ms_text(assignment.slowest_ms), ms_text(assignment.traffic_ms)
        said = (
            f"not every assignment was looked at: of this one the slowest path takes {slowest_ms} ms, {_words(path)}, "
            f"and all traffic {traffic_ms} ms, {_words(traffic)} ({assignment.nodes} nodes, {least} at least)"
        )
    return (said,)


def start_words(service: Service, plan: Plan) -> tuple[str, ...]:
    """Why the service's engine cannot be started so; nothing where it can."""
    obstacle = adapter_for(service.engine).start_obstacle(plan)
    return () if obstacle is None else (f"planned, but it cannot be started: {obstacle.message}; {obstacle.remedy}",)


def _above(ms: float, least_ms: float | None) -> float | None:
    """By what share of the least possible a time is above it; None where nobody knows."""
    return None if least_ms is None else max(0.0, ms / least_ms - 1)


def _words(above: float | None) -> str:
    if above is None:
        return "and nobody knows what is the least possible"
    return f"at most {above:.1%} more than the least possible" if above else "the least possible"
