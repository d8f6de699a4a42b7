"""A client of the router, byte by byte, and what it reads."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

KEY = "sk-job"


@dataclass(kw_only=True)
class Answer:
    """A response as a client got it. `whole`: it ended the way its framing says."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    interim: list[int] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return str(self.json["choices"][0].get("text") or self.json["choices"][0]["message"]["content"])

    @property
    def events(self) -> list[bytes]:
        return [each for each in self.body.split(b"\n\n") if each]

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return found


class Connection:
    """A client's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, path: str, body: Any, **headers: str) -> None:
        await self.write(request("POST", path, body, **headers))

    async def answer(self) -> Answer:
        interim = []
        while True:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            if status >= 200:
                break
            interim.append(status)
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body, whole = b"", True
        if headers.get("transfer-encoding") == "chunked":
            while True:
                try:
                    size = int(await self.reader.readuntil(b"\r\n"), 16)
                    body += (await self.reader.readexactly(size + 2))[:-2]
                except asyncio.IncompleteReadError:
                    whole = False
                    break
                if size == 0:
                    break
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return Answer(status=status, headers=headers, body=body, whole=whole, interim=interim)

    async def is_closed(self) -> bool:
        return await self.reader.read(1) == b""

    def close(self) -> None:
        self.writer.close()


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"Host": "router", "Authorization": f"Bearer {KEY}"}
    if body is not None:
        named |= {"Content-Type": "application/json", "Content-Length": str(len(raw))}
    named |= {key.replace("_", "-"): value for key, value in headers.items()}
    lines = "".join(f"{key}: {value}\r\n" for key, value in named.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + raw
