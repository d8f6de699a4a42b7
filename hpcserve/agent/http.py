"""Questions to this node's engines, by http.client in a thread: few, small, and off every request's path."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Answer", "UnreachableError", "ask"]


class UnreachableError(Exception):
    """No answer came; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status and text of an answer."""

    status: int
    text: str


async def ask(
    url: str, *, key: str | None = None, body: Mapping[str, Any] | None = None, timeout_s: float = 10.0
) -> Answer:
    """GET `url`, or POST `body` as JSON; any HTTP status is an answer. Raises UnreachableError."""
    return await asyncio.to_thread(_ask, url, key, body, timeout_s)


def _ask(url: str, key: str | None, body: Mapping[str, Any] | None, timeout_s: float) -> Answer:
    parts = urlsplit(url)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    try:
        # To the worker itself: sites set http_proxy for the outside world.
        with contextlib.closing(HTTPConnection(parts.netloc, timeout=timeout_s)) as line:
            text = None if body is None else json.dumps(body).encode()
            line.request("GET" if body is None else "POST", parts.path, body=text, headers=headers)
            answer = line.getresponse()
            return Answer(status=answer.status, text=answer.read().decode(errors="replace"))
    except (OSError, HTTPException) as error:
        raise UnreachableError(str(error) or type(error).__name__) from None
