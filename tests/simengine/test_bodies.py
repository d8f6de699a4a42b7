"""Bodies as an engine reads them that tokenizes as a model's own files say."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from hpcserve.simengine import read_settings
from hpcserve.simengine.bodies import RefusedError, read_chat, read_completion, read_tokenize
from hpcserve.simengine.model_tokens import load_model_tokens
from hpcserve.simengine.tokens import VOCABULARY, MadeUpTokens, Tokens
from tests.tiny_model import byte_level, write_tokenizer

SETTINGS = read_settings(["name", "--sim-kv-bytes-per-token", "1000"], {})


def model(directory: Path, tokenizer: Tokenizer) -> Tokens:
    write_tokenizer(directory, tokenizer)
    return load_model_tokens(directory)


def with_many_ids() -> Tokenizer:
    made = byte_level()
    made.add_tokens([AddedToken(f"<{number}>", normalized=False) for number in range(VOCABULARY)])
    return made


def ids(data: dict[str, Any], tokens: Tokens) -> list[int]:
    (prompt,) = read_completion(data, SETTINGS, tokens).prompts
    return list(prompt)


def test_ids_are_taken_up_to_the_vocabularys_end(tmp_path: Path) -> None:
    """The larger of the tokenizer's and the simulated model's, whose answers may be sent again."""
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    large = with_many_ids()
    for tokens, end in (
        (MadeUpTokens(), VOCABULARY),
        (model(tmp_path / "small", byte_level()), VOCABULARY),
        (model(tmp_path / "large", large), large.get_vocab_size()),
    ):
        assert ids({"prompt": [5, end - 1, 7]}, tokens) == [5, end - 1, 7]
        for prompt in ([5, end, 7], [[5, end]]):
            with pytest.raises(RefusedError, match=f"Token id {end} is out of vocabulary"):
                ids({"prompt": prompt}, tokens)


@pytest.mark.parametrize(
    ("said", "in_text", "in_chat"),
    [({}, True, False), *(({"add_special_tokens": one}, one, one) for one in (True, False))],
)
def test_special_tokens_stand_at_the_ends_as_asked(
    said: dict[str, Any], *, in_text: bool, in_chat: bool, tmp_path: Path
) -> None:
    tokens, begin = model(tmp_path, byte_level()), byte_level().token_to_id("<s>")
    text = {"prompt": "the wind", **said}
    chat = {"messages": [{"role": "user", "content": "the wind"}], **said}
    assert (begin in ids(text, tokens)) == (begin in read_tokenize(text, SETTINGS, tokens)) == in_text
    asked = read_chat(chat, SETTINGS, tokens)
    assert (begin in asked.prompts[0]) == (begin in read_tokenize(chat, SETTINGS, tokens)) == in_chat


@pytest.mark.parametrize("said", [None, "x", 2, 1.5, []])
def test_what_is_no_boolean_is_refused_as_by_vllm(said: Any) -> None:
    for body in ({"prompt": "a"}, {"messages": [{"role": "user", "content": "a"}]}):
        with pytest.raises(RefusedError, match="Input should be a valid boolean") as refused:
            read_tokenize({**body, "add_special_tokens": said}, SETTINGS, MadeUpTokens())
        assert refused.value.content["error"]["param"] == "body.add_special_tokens"
