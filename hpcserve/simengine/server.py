"""The simulated engine's HTTP API: routes, key, errors; and the life of its process."""

import asyncio
import hashlib
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from uuid import uuid4

from hpcserve.simengine.bodies import RefusedError, read_body, read_chat, read_completion, read_tokenize
from hpcserve.simengine.engine import Engine
from hpcserve.simengine.generate import answer
from hpcserve.simengine.http import Reply, Request, answer_json, serve
from hpcserve.simengine.publisher import Publisher
from hpcserve.simengine.settings import Settings
from hpcserve.simengine.tokens import MadeUpTokens, Tokens

__all__ = ["run", "version"]

_GUARDED = ("/v1", "/v2", "/inference")
"""Paths that need the key, as in vLLM's AuthenticationMiddleware."""

_DEATH_DELAY_S = 0.2
"""Time for the answers of a dying engine to leave."""


def version() -> str:
    """The version that this engine shows."""
    return f"{metadata.version('hpcserve')}+simulated"


class _Api:
    def __init__(self, engine: Engine, tokens: Tokens) -> None:
        self._engine = engine
        self._tokens = tokens
        self._settings = engine.settings
        self._key = _digest(self._settings.api_key) if self._settings.api_key else None
        self._started = int(time.time())
        self._fingerprint = f"simulated-{version()}"
        self._open = 0
        self._routes: dict[str, tuple[str, Callable[[Request, Reply], Awaitable[None]]]] = {
            "/health": ("GET", self._health),
            "/ping": ("GET", self._health),
            "/version": ("GET", self._version),
            "/load": ("GET", self._load),
            "/metrics": ("GET", self._metrics),
            "/v1/models": ("GET", self._models),
            "/v1/completions": ("POST", self._completions),
            "/v1/chat/completions": ("POST", self._chat),
            "/tokenize": ("POST", self._tokenize),
        }
        if self._settings.dev_mode:
            self._routes["/reset_prefix_cache"] = ("POST", self._reset_prefix_cache)

    async def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        if self._key is not None and request.path.startswith(_GUARDED) and not self._knows_key(request):
            answer_json(reply, HTTPStatus.UNAUTHORIZED, {"error": "Unauthorized"})
            return
        method, handler = self._routes.get(request.path, ("", None))
        if handler is None:
            answer_json(reply, HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
        elif request.method != method:
            extra = f"allow: {method}\r\n"
            answer_json(reply, HTTPStatus.METHOD_NOT_ALLOWED, {"detail": "Method Not Allowed"}, extra=extra)
        else:
            try:
                await handler(request, reply)
            except RefusedError as refusal:
                answer_json(reply, refusal.status, refusal.content)

    def _knows_key(self, request: Request) -> bool:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._key is not None and secrets.compare_digest(_digest(key), self._key)

    async def _health(self, _request: Request, reply: Reply) -> None:
        reply.whole(HTTPStatus.OK if self._engine.dead is None else HTTPStatus.SERVICE_UNAVAILABLE, b"")

    async def _version(self, _request: Request, reply: Reply) -> None:
        answer_json(reply, HTTPStatus.OK, {"version": version()})

    async def _load(self, _request: Request, reply: Reply) -> None:
        answer_json(reply, HTTPStatus.OK, {"server_load": self._open})

    async def _metrics(self, _request: Request, reply: Reply) -> None:
        reply.whole(HTTPStatus.OK, self._engine.meters.text(), kind="text/plain; version=1.0.0; charset=utf-8")

    async def _models(self, _request: Request, reply: Reply) -> None:
        permission = {
            "id": f"modelperm-{uuid4().hex[:16]}",
            "object": "model_permission",
            "created": self._started,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        model = {
            "id": self._settings.served_name,
            "object": "model",
            "created": self._started,
            "owned_by": "hpcserve (simulated)",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [permission],
        }
        answer_json(reply, HTTPStatus.OK, {"object": "list", "data": [model]})

    async def _completions(self, request: Request, reply: Reply) -> None:
        asked = read_completion(read_body(request.body, request.headers), self._settings, self._tokens)
        self._open += 1
        try:
            await answer(self._engine, asked, request.headers, reply, self._fingerprint)
        finally:
            self._open -= 1

    async def _chat(self, request: Request, reply: Reply) -> None:
        asked = read_chat(read_body(request.body, request.headers), self._settings, self._tokens)
        self._open += 1
        try:
            await answer(self._engine, asked, request.headers, reply, self._fingerprint)
        finally:
            self._open -= 1

    async def _reset_prefix_cache(self, _request: Request, reply: Reply) -> None:
        answer_json(reply, HTTPStatus.OK, {"success": self._engine.reset_prefix_cache()})

    async def _tokenize(self, request: Request, reply: Reply) -> None:
        tokens = read_tokenize(read_body(request.body, request.headers), self._settings, self._tokens)
        limit = self._settings.max_model_len
        answer_json(
            reply,
            HTTPStatus.OK,
            {"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": None},
        )


async def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT (0) or until a request broke the engine (1).

    Raises OSError for a taken address, HpcserveError where a package or a file is missing that was asked for.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def die(reason: str) -> None:
        _log(f"ERROR: EngineCore encountered a fatal error (simulated): malformed kv_transfer_params: {reason}")
        loop.call_later(_DEATH_DELAY_S, end, 1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, 0)
    tokens = _tokens_of(settings)
    publisher = None if settings.events is None else Publisher(settings.events)
    try:
        engine = Engine(settings, die, tell=None if publisher is None else publisher.publish)
        await engine.start()
        server = await serve(_Api(engine, tokens).handle, settings.host, settings.port)
        port = server.sockets[0].getsockname()[1]
        _log(f"simulated engine {version()} serves {settings.served_name} on http://{settings.host}:{port}")
        if settings.ignored:
            _log(f"arguments without meaning for a simulated engine: {' '.join(settings.ignored)}")
        steps = asyncio.ensure_future(engine.run())
        steps.add_done_callback(lambda _: end(1))
        code = await ended
        server.close()
        engine.close()
        if steps.done():
            steps.result()
        steps.cancel()
        return code
    finally:
        if publisher is not None:
            publisher.close()


def _tokens_of(settings: Settings) -> Tokens:
    if not settings.model_tokenizer:
        return MadeUpTokens()
    from hpcserve.simengine.model_tokens import load_model_tokens  # noqa: PLC0415 - Jinja2 and more, seldom wanted

    return load_model_tokens(Path(settings.model))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _log(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - standard output is the engine's log, as vLLM's is
