"""Questions to this node's engines, by urllib in a thread: few, small, and off every request's path."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

__all__ = ["Answer", "Unreachable", "ask"]

# Sites set http_proxy for the outside world; a worker of this node must not be asked through it.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Unreachable(Exception):  # noqa: N818 - a state of the other side, which callers expect and handle
    """No answer came; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status and text of an answer."""

    status: int
    text: str


async def ask(
    url: str, *, key: str | None = None, body: Mapping[str, Any] | None = None, timeout_s: float = 10.0
) -> Answer:
    """GET `url`, or POST `body` as JSON; any HTTP status is an answer. Raises Unreachable."""
    return await asyncio.to_thread(_ask, url, key, body, timeout_s)


def _ask(url: str, key: str | None, body: Mapping[str, Any] | None, timeout_s: float) -> Answer:
    request = urllib.request.Request(  # noqa: S310 - http:// of our own making
        url, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    if key is not None:
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return Answer(status=answer.status, text=answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(status=error.code, text=error.read().decode(errors="replace"))
    except (OSError, HTTPException) as error:
        raise Unreachable(str(getattr(error, "reason", None) or error or type(error).__name__)) from None
