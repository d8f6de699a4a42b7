"""Token ids of a request equal those of the whole text tokenized at once, and what cannot be equal is refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

from hpcserve.errors import ServiceError
from hpcserve.router.kv_prompt import Known
from hpcserve.router.tokens import PromptTokens, load_prompt_tokens
from hpcserve.routing.block_hashes import packed_tokens
from hpcserve.routing.chat_messages import UnlikeEngineError
from tests.tiny_model import CORPUS, SPECIAL, byte_level, loaded

UNKNOWN = "<unk>"


def with_word_starts(scheme: str) -> Tokenizer:
    """Words begin with a mark, as in SentencePiece; the scheme says whether every piece of text gets one."""
    made = Tokenizer(models.BPE(unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False, special_tokens=[UNKNOWN]))
    made.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in SPECIAL])
    return made


def with_prepended_mark() -> Tokenizer:
    made = with_word_starts("never")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


def with_greedy_special() -> Tokenizer:
    """Special tokens that swallow the blanks beside them, and one that begins as another does."""
    made = byte_level()
    made.add_special_tokens([
        AddedToken("<mask>", special=True, normalized=False, lstrip=True, rstrip=True),
        AddedToken("<|im_end|><|im_start|>", special=True, normalized=False),
    ])  # fmt: skip
    return made


TOKENIZERS = {
    "byte level": byte_level,
    "first": lambda: with_word_starts("first"),
    "always": lambda: with_word_starts("always"),
    "prepended": with_prepended_mark,
    "greedy": with_greedy_special,
}


@pytest.fixture(scope="module", params=list(TOKENIZERS))
def both(request: pytest.FixtureRequest) -> tuple[Tokenizer, PromptTokens]:
    tokenizer = TOKENIZERS[request.param]()
    return tokenizer, PromptTokens(tokenizer, None)


def fields(body: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> PromptTokens:
    return loaded(byte_level(), tmp_path_factory.mktemp("chatml"))


TEXTS = st.lists(st.sampled_from([*SPECIAL, "<mask>", " ", "\n", "<|im", "wind", "12", "é", "你", "\U0001f600", "x "]))


@settings(max_examples=60, deadline=None)
@given(pieces=TEXTS, special=st.booleans())
def test_pieces_give_the_ids_of_the_whole_text(
    both: tuple[Tokenizer, PromptTokens], pieces: list[str], special: bool
) -> None:
    tokenizer, made = both
    text = "".join(pieces)
    wanted = packed_tokens(tokenizer.encode(text, add_special_tokens=special).ids)
    body = fields({"prompt": text, "add_special_tokens": special})
    assert made.tokens("completions", body) == wanted
    assert made.look("completions", body) == Known(tokens=wanted)


@pytest.mark.parametrize("kind", ["byte level", "first", "greedy"])
def test_common_tokenizers_are_cut_into_pieces(kind: str) -> None:
    assert PromptTokens(TOKENIZERS[kind](), None).by_piece


def test_earlier_messages_are_not_tokenized_again(tmp_path: Path) -> None:
    made = loaded(byte_level(), tmp_path)
    messages = [{"role": "user", "content": "Name three rivers."}, {"role": "assistant", "content": "the sea"}]
    made.tokens("chat", fields({"messages": messages[:1]}))
    grown = fields({"messages": [*messages, {"role": "user", "content": "the wind"}]})
    known = made.look("chat", grown)
    assert known.unknown == ("<|im_start|>assistant\nthe sea", "<|im_start|>user\nthe wind")
    made.learn(made.encode(known.unknown))
    text = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nName three rivers.<|im_end|>\n"
        "<|im_start|>assistant\nthe sea<|im_end|>\n<|im_start|>user\nthe wind<|im_end|>\n<|im_start|>assistant\n"
    )
    whole = packed_tokens(byte_level().encode(text, add_special_tokens=False).ids)
    assert made.look("chat", grown) == Known(tokens=whole)
    assert known.tokens
    assert whole.startswith(known.tokens)


def test_special_tokens_are_added_as_vllm_adds_them(tmp_path: Path) -> None:
    """To a completion's prompt unless it says no; to a chat only if it says yes, as the template writes its own."""
    made = loaded(byte_level(), tmp_path)
    bos = packed_tokens(byte_level().encode("<s>", add_special_tokens=False).ids)
    chat = {"messages": [{"role": "user", "content": "the wind"}]}
    assert made.tokens("completions", fields({"prompt": "the wind"})).startswith(bos)
    assert not made.tokens("completions", fields({"prompt": "the wind", "add_special_tokens": False})).startswith(bos)
    assert not made.tokens("chat", fields(chat)).startswith(bos)
    assert made.tokens("chat", fields({**chat, "add_special_tokens": True})).startswith(bos)


def test_the_cache_of_pieces_is_bounded(tmp_path: Path) -> None:
    made = loaded(byte_level(), tmp_path)
    for number in range(60):
        made.learn({f"{number}": b"i" * 500_000})
    kept = sum(len(piece) + len(ids) for part in (made._young, made._old) for piece, ids in part.items())
    assert 8 << 20 < kept < 17 << 20
    assert made.look("completions", fields({"prompt": "59", "add_special_tokens": False})).tokens == b"i" * 500_000


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [([101, 2023, 102], [101, 2023, 102]), ([[101, 2023]], [101, 2023])],
)
def test_prompts_of_token_ids_need_no_tokenizer(tmp_path: Path, prompt: Any, ids: list[int]) -> None:
    made = loaded(byte_level(), tmp_path)
    assert made.look("completions", fields({"prompt": prompt})) == Known(tokens=packed_tokens(ids))


PARTS = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("completions", {"prompt": []}),
        ("completions", {"prompt": [5, -1]}),
        ("completions", {"prompt": ["a", 7]}),
        ("completions", {"prompt": [[1], [2]]}),
        ("completions", {"prompt": [True]}),
        ("completions", {"prompt": {"text": "a"}}),
        ("completions", {}),
        ("completions", {"prompt": "a", "truncate_prompt_tokens": 5}),
        ("completions", {"prompt": "a", "add_special_tokens": "no"}),
        ("completions", {"prompt": "a", "add_special_tokens": []}),
        ("completions", {"prompt": "x" * 1_100_000}),
        ("chat", {}),
        ("chat", {"messages": []}),
        ("chat", {"messages": ["a"]}),
        ("chat", {"messages": [{"role": "user", "content": PARTS}]}),
        ("chat", {"messages": [{"role": "user", "content": 5}]}),
        ("chat", {"messages": [{"role": "developer", "content": "a"}]}),
        ("chat", {"messages": [{"role": None, "content": "a"}]}),
        ("chat", {"messages": [{"role": "user", "content": "a"}], "tools": {}}),
        ("chat", {"messages": [{"role": "user", "content": "a"}], "chat_template": "{{ 1 }}"}),
        ("chat", {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"messages": []}}),
        ("chat", {"messages": [{"role": "user", "content": "a"}], "continue_final_message": True}),
        ("chat", {"messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}]}),
    ],
)
def test_what_cannot_be_made_as_the_engine_makes_it_is_refused(
    chatml: PromptTokens, kind: Any, body: dict[str, Any]
) -> None:
    with pytest.raises(UnlikeEngineError):
        chatml.tokens(kind, fields(body))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": 5}'])
def test_a_tokenizer_that_cannot_be_read_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(ServiceError, match="approximate"):
        load_prompt_tokens(tmp_path)


def test_a_model_without_a_tokenizer_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"tokenizer\.json"):
        load_prompt_tokens(tmp_path)
