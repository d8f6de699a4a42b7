"""What the router says of itself: the models, its health, its metrics, its last choices."""

import msgspec

from hpcserve.router.answers import head_of, json_answer
from hpcserve.router.decisions import decisions_text
from hpcserve.router.desk import Desk
from hpcserve.router.roster import Roster
from hpcserve.router.views import metrics_text

__all__ = ["DECISIONS_PATH", "OPEN_PATHS", "document"]

DECISIONS_PATH = b"/debug/decision"

OPEN_PATHS = frozenset({b"/health", b"/live", b"/metrics"})
"""Asked without a key, as vLLM's own are: probes and Prometheus have none, and nothing of a prompt shows in them."""


def document(desk: Desk, path: bytes, *, keep_alive: bool) -> bytes:
    """What the router says of itself."""
    roster = desk.roster
    if path == b"/v1/models":
        return json_answer(200, _models(roster), keep_alive=keep_alive)
    if path == b"/live":
        return json_answer(200, b'{"status":"live"}', keep_alive=keep_alive)
    ready = roster.ready and not desk.draining
    if path == b"/health":
        status = "draining" if desk.draining else "ready" if ready else "starting"
        text = msgspec.json.encode({"status": status, "waiting_for": roster.waiting_for()})
        return json_answer(200 if ready else 503, text, keep_alive=keep_alive)
    if path == DECISIONS_PATH:
        return json_answer(200, decisions_text(desk.decisions, now_s=desk.now_s()), keep_alive=keep_alive)
    text = metrics_text(desk)
    head = head_of(
        200, content_type="text/plain; version=0.0.4; charset=utf-8", length=len(text), keep_alive=keep_alive
    )
    return head + text


def _models(roster: Roster) -> bytes:
    """The union of what the workers serve, each name once."""
    longest: dict[str, int | None] = dict.fromkeys(roster.table.models)
    for endpoint in roster.endpoints:
        longest[endpoint.model] = longest[endpoint.model] or endpoint.max_model_len
    owner = "hpcserve (simulated)" if roster.simulated else "hpcserve"
    models = [
        {"id": name, "object": "model", "created": 0, "owned_by": owner, "max_model_len": length}
        for name, length in longest.items()
    ]
    return msgspec.json.encode({"object": "list", "data": models})
