"""Token ids by the model's own tokenizer and chat template, so that a router that tokenizes makes the same."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcserve.errors import MissingToolError, ServiceError
from hpcserve.routing import UnlikeEngineError
from hpcserve.routing.chat_template import ChatTemplate, template_of
from hpcserve.simengine.bodies import RefusedError
from hpcserve.simengine.tokens import VOCABULARY

__all__ = ["ModelTokens", "load_model_tokens"]

_REMEDY = "give a model directory with both, or leave --sim-model-tokenizer out"


class ModelTokens:
    """See `tokens.Tokens`."""

    def __init__(self, tokenizer: Any, template: ChatTemplate | None) -> None:
        """`tokenizer`: one of the `tokenizers` package; `template`: None where the model has none."""
        self._encode = tokenizer.encode
        self._template = template
        # vLLM 0.32 takes the larger of the tokenizer's and the model's (renderers/base.py): here the simulated one's.
        self.vocabulary = max(VOCABULARY, 1 + max(tokenizer.get_vocab().values(), default=0))

    def of_text(self, text: str, *, special: bool) -> list[int]:
        """See `tokens.Tokens`."""
        return list(self._encode(text, add_special_tokens=special).ids)

    def of_chat(self, data: Mapping[str, Any], _messages: Sequence[tuple[str, str]], /, *, special: bool) -> list[int]:
        """See `tokens.Tokens`; raises RefusedError for what the template does not take."""
        if self._template is None:
            raise RefusedError("this model has no chat template")
        try:
            text = self._template.render(data)
        except UnlikeEngineError as error:
            raise RefusedError(str(error)) from None
        return self.of_text(text, special=special)


def load_model_tokens(directory: Path) -> ModelTokens:
    """The model's own. Raises MissingToolError without the extra `kv`, ServiceError for wrong files."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra, and only where it is asked for
    except ImportError:
        raise MissingToolError("the package `tokenizers` is not installed", remedy="install hpcserve[kv]") from None
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise ServiceError(f"{directory} has no tokenizer.json", remedy=_REMEDY)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the package raises plain Exception
        raise ServiceError(f"{path} cannot be read: {str(error)[:200]}", remedy=_REMEDY) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        settings = (directory / "tokenizer_config.json").read_bytes()
        own = directory / "chat_template.jinja"
        text = own.read_text(encoding="utf-8") if own.is_file() else None
        template = template_of(settings, own=text, strftime_now=time.strftime)
    except (OSError, ValueError) as error:
        raise ServiceError(f"the chat template in {directory} cannot be read: {error}", remedy=_REMEDY) from None
    return ModelTokens(tokenizer, template)
