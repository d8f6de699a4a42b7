"""Prompts as token ids, the same that vLLM makes: tokenizer, chat template, and what was tokenized before.

A text is cut before each special token, and each piece is tokenized once: a conversation's earlier messages are pieces
that are known. That this gives the same ids is tried out when the tokenizer is loaded; where it does not, a text is one
piece. The ids of a whole request are compared with an engine's `/tokenize` before anything is built on them.
"""

import contextlib
import ctypes
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hpcserve.errors import MissingToolError, ServiceError
from hpcserve.router.kv_prompt import CHANGES_THE_PROMPT, Kind, Known
from hpcserve.routing import UnlikeEngineError, packed_tokens
from hpcserve.routing.chat_template import ChatTemplate, template_of

__all__ = ["PromptTokens", "load_prompt_tokens"]

_CACHE_BYTES = 8 << 20
"""Of each of two generations of pieces: text and ids of some 4,000 messages of 1 KiB."""
_MOST_TEXT_BYTES = 1 << 20
"""A longer prompt is not tokenized here: more than 200,000 tokens, and the time would be felt."""

_CHAT_KEYS = frozenset({"messages", *CHANGES_THE_PROMPT})
"""All that a chat's template may read: two requests that are alike in these are taken for the same prompt."""
_TRIED = (
    "",
    "Hello, world",
    " two  spaces ",
    "\n\nline\n",
    "1234567.89 + x_y",
    "d\u00e9j\u00e0 vu \u4f60\u597d \U0001f600\u200d\u2764\ufe0f e\u0301",
    "{'a': [1, 2]}\t\r\n",
)


class PromptTokens:
    """A tokenizer with its chat template, and the pieces of text that it has seen."""

    def __init__(self, tokenizer: Any, template: ChatTemplate | None) -> None:
        """`tokenizer`: one of the `tokenizers` package; `template`: None where the model has none."""
        self._encode_batch = tokenizer.encode_batch
        self._template = template
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._young_bytes = 0
        self._cut = _Cutter(tokenizer)
        self._before, self._after = self._special_ends()
        self.by_piece = self._pieces_are_right()

    def look(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> Known:
        """What is known of the prompt without tokenizing anything. Raises UnlikeEngineError."""
        wanted = self._text(kind, fields)
        if isinstance(wanted, bytes):
            return Known(tokens=wanted)
        text, special = wanted
        pieces = self._pieces(text)
        found, unknown = [self._before] if special else [], []
        for piece in pieces:
            ids = self._young.get(piece)
            if ids is None:
                ids = self._old.get(piece)
                if ids is None:
                    unknown.append(piece)
                    continue
                self._keep(piece, ids)
            if not unknown:
                found.append(ids)
        if special and not unknown:
            found.append(self._after)
        return Known(tokens=b"".join(found), unknown=tuple(unknown))

    def encode(self, pieces: Iterable[str]) -> dict[str, bytes]:
        """Packed ids of pieces; slow, made to run in a thread. `learn` takes the result."""
        new = list(dict.fromkeys(pieces))
        encoded = self._encode_batch(new, add_special_tokens=False) if new else []
        return {piece: packed_tokens(one.ids) for piece, one in zip(new, encoded, strict=True)}

    def learn(self, pieces: Mapping[str, bytes]) -> None:
        """Keep what `encode` found; on the loop."""
        for piece, ids in pieces.items():
            self._keep(piece, ids)

    def whole(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> tuple[bytes, dict[str, bytes]]:
        """All packed token ids at whatever cost, and what `learn` takes. Raises UnlikeEngineError.

        It changes nothing here, so that it may run in a thread while the loop looks and learns.
        """
        wanted = self._text(kind, fields)
        if isinstance(wanted, bytes):
            return wanted, {}
        text, special = wanted
        pieces = self._pieces(text)
        known = {**self._of(pieces, self._old), **self._of(pieces, self._young)}
        new = self.encode(piece for piece in pieces if piece not in known)
        known.update(new)
        ids = b"".join(known[piece] for piece in pieces)
        return (self._before + ids + self._after if special else ids), new

    @staticmethod
    def _of(pieces: Iterable[str], kept: Mapping[str, bytes]) -> dict[str, bytes]:
        return {piece: ids for piece in pieces if (ids := kept.get(piece)) is not None}

    def tokens(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> bytes:
        """All packed token ids, at whatever cost; they are kept. Raises UnlikeEngineError."""
        ids, new = self.whole(kind, fields)
        self.learn(new)
        return ids

    def _pieces(self, text: str) -> list[str]:
        return self._cut(text) if self.by_piece else [text]

    def _text(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> bytes | tuple[str, bool]:
        """The ids where the client sent them, else the text, and whether special tokens are added at its ends."""
        size = sum(len(memoryview(fields[name])) for name in ("messages", "prompt") if name in fields)
        if size > _MOST_TEXT_BYTES:
            raise UnlikeEngineError(f"the prompt has more than {_MOST_TEXT_BYTES} bytes")
        special = _decoded(fields, "add_special_tokens")
        if special not in (None, True, False):
            raise UnlikeEngineError("add_special_tokens is no boolean")
        if kind == "chat":
            if self._template is None:
                raise UnlikeEngineError("the model has no chat template")
            known = {name: _decoded(fields, name) for name in _CHAT_KEYS & fields.keys()}
            return self._template.render(known), bool(special)
        if _decoded(fields, "truncate_prompt_tokens") is not None:
            raise UnlikeEngineError("truncate_prompt_tokens is set")
        prompt = _decoded(fields, "prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return prompt, special is None or bool(special)
        if isinstance(prompt, list) and prompt and all(type(one) is int and 0 <= one < 1 << 31 for one in prompt):
            return packed_tokens(prompt)
        raise UnlikeEngineError("the prompt is neither one text nor one list of token ids")

    def _keep(self, piece: str, ids: bytes) -> None:
        size = len(piece) + len(ids) + 150  # of which about 150 bytes are Python's
        if self._young_bytes + size > _CACHE_BYTES:
            self._old, self._young, self._young_bytes = self._young, {}, 0
        self._young[piece] = ids
        self._young_bytes += size

    def _special_ends(self) -> tuple[bytes, bytes]:
        """What the tokenizer puts before and after a text when special tokens are asked for."""
        plain, full = (self._encode("a", special=special) for special in (False, True))
        place = full.find(plain)
        return full[:place], full[place + len(plain) :]

    def _pieces_are_right(self) -> bool:
        """Whether pieces give the ids that a whole text gives."""
        between = self._cut.between
        texts = [mark.join(_TRIED) for mark in between] + list(_TRIED)
        texts += [mark + mark.join((one, one)) + mark for mark in between for one in _TRIED]
        for text in texts:
            pieces = b"".join(self._encode(piece) for piece in self._cut(text))
            if pieces != self._encode(text):
                return False
            if self._before + pieces + self._after != self._encode(text, special=True):
                return False
        return True

    def _encode(self, text: str, *, special: bool = False) -> bytes:
        return packed_tokens(self._encode_batch([text], add_special_tokens=special)[0].ids)


class _Cutter:
    """Cuts a text before each special token that stands for itself wherever it is."""

    def __init__(self, tokenizer: Any) -> None:
        added = [one for one in tokenizer.get_added_tokens_decoder().values() if one.content and not one.normalized]
        self._alone = {
            one.content for one in added if one.special and not (one.lstrip or one.rstrip or one.single_word)
        }
        longest_first = sorted({one.content for one in added}, key=len, reverse=True)
        self._any = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if self._alone else None
        self.between = sorted(self._alone)[:8]
        """Some of those special tokens."""

    def __call__(self, text: str) -> list[str]:
        if self._any is None:
            return [text]
        parts = self._any.split(text)  # text, special token, text, special token, ..., text
        pieces, last = [], parts[0]
        for place in range(1, len(parts), 2):
            token, behind = parts[place], parts[place + 1]
            if token in self._alone:
                if last:
                    pieces.append(last)
                last = token + behind
            else:
                last += token + behind
        pieces.append(last)
        return pieces


def _decoded(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise UnlikeEngineError(f"{name} cannot be read") from None


def load_prompt_tokens(model_directory: Path) -> PromptTokens:
    """The model's tokenizer. Raises MissingToolError without the extra `kv`, ServiceError where it is another kind."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingToolError(
            "the package `tokenizers` is not installed", remedy="install hpcserve[kv], or set router.kv: approximate"
        ) from None
    path = model_directory / "tokenizer.json"
    if not path.is_file() or (model_directory / "preprocessor_config.json").exists():
        raise ServiceError(
            f"{model_directory} has no tokenizer.json, or is a multimodal model",
            remedy="set router.kv: approximate",
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the package raises plain Exception
        raise ServiceError(f"{path} cannot be read: {str(error)[:200]}", remedy="set router.kv: approximate") from None
    _give_back_memory()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return PromptTokens(tokenizer, _template_of(model_directory))


def _give_back_memory() -> None:
    """Parsing leaves some 15 MB behind that glibc keeps; where there is another C library, nothing is done."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _template_of(directory: Path) -> ChatTemplate | None:
    try:
        own = directory / "chat_template.jinja"
        text = own.read_text(encoding="utf-8") if own.is_file() else None
        settings = (directory / "tokenizer_config.json").read_bytes()
        return template_of(settings, own=text, strftime_now=time.strftime)
    except (OSError, ValueError) as error:
        raise ServiceError(
            f"the chat template in {directory} cannot be read: {error}", remedy="set router.kv: approximate"
        ) from None
