"""What a proof asks, and whether two answers to it are the same answer."""

import random
from dataclasses import dataclass
from enum import Enum

import msgspec

__all__ = ["PROOF_TOKENS", "Completion", "Likeness", "compare", "proof_body", "proof_prompt", "read_completion"]

PROOF_TOKENS = 8
_TIE_ALTERNATIVES = 5
"""The most that OpenAI's completions API takes."""
_NEAR_TIE_NATS = 0.25
"""How far apart two tokens may be for a rounding to swap them: two logits between 16 and 32, each off by one step of
bf16 (8 bits, so 2^-3 there), as another batch or another split of the model adds up in another order."""
_WORDS = """
time year day way man world life hand part child eye woman place work week case point home water room night area
money story fact month lot right study book job word side kind head house friend father power hour game line end
law car city name team idea body back face door health art war party morning reason girl air force boy age food
bank sea king road tree bird fish boat hill stone bread milk salt sugar glass table chair window floor wall roof
garden field river lake island beach snow rain wind cloud sun moon star fire ice wood iron gold silver paper
letter number map ship train plane wheel bridge tower church market shop coat shirt shoe hat ring bell horse dog
cat cow
"""
"""Words that a tokenizer keeps whole: a model is surer of how a list of them goes on than of made-up ones."""


def proof_prompt(nonce: int, *, block_size: int, max_tokens: int | None) -> str:
    """A list of words in an order that nobody has, said twice and begun again: how it goes on stands in the KV alone.

    Said once, the model wavers too often; said three times, it goes on rightly with a part of the KV spoiled. Longer
    than two blocks of up to 128 tokens, and at most `max_tokens` characters: no tokenizer makes more tokens of them.
    """
    words = _WORDS.split()
    random.Random(nonce).shuffle(words)  # noqa: S311 - an order, not a secret
    count = min(block_size, len(words))
    while True:
        prompt = " ".join((*words[:count], *words[:count], *words[: count // 2]))
        if max_tokens is None or count <= _FEWEST_WORDS or len(prompt) <= max_tokens - PROOF_TOKENS:
            return prompt
        count -= 1


_FEWEST_WORDS = 2


def proof_body(*, model: str, prompt: str, salt: str) -> bytes:
    """Greedy, with logprobs; the salt keeps any prefix cache from standing in for the transfer."""
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": PROOF_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": _TIE_ALTERNATIVES,
            "cache_salt": salt,
            "stream": False,
        }
    )


class _Logprobs(msgspec.Struct):
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    text: str
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A completion's text, its tokens, and to each token the logprobs of those that could have stood there."""

    text: str
    tokens: tuple[str, ...]
    alternatives: tuple[dict[str, float], ...]


class Likeness(Enum):
    """What two answers to the same prompt say of one another."""

    SAME = "same"
    UNSURE = "unsure"
    OTHER = "other"


_DECODER = msgspec.json.Decoder(_Answer)


def read_completion(text: bytes) -> Completion:
    """The first choice of a completion; raises ValueError where there is none, or none with a token."""
    answer = _DECODER.decode(text)
    choice = answer.choices[0] if answer.choices else None
    logprobs = None if choice is None else choice.logprobs
    if choice is None or logprobs is None or not logprobs.tokens:
        raise ValueError("a completion without tokens")
    return Completion(
        text=choice.text,
        tokens=tuple(logprobs.tokens),
        alternatives=tuple(each or {} for each in logprobs.top_logprobs or ()),
    )


def compare(handed: Completion, local: Completion) -> tuple[Likeness, str]:
    """Whether an answer from handed-over KV is the local one, and how it differs where it is not.

    Where both runs held both tokens for about equally likely, rounding may have chosen: nothing is known then. Behind
    a parting nothing can be compared.
    """
    for place, (theirs, ours) in enumerate(zip(handed.tokens, local.tokens, strict=False)):
        if theirs == ours:
            continue
        gaps = (_gap(local, place, theirs, ours), _gap(handed, place, theirs, ours))
        near = all(gap is not None and gap <= _NEAR_TIE_NATS for gap in gaps)
        shown = ", ".join("more" if gap is None else f"{gap:.2f}" for gap in gaps)
        words = f"token {place + 1} is {theirs!r} with the KV that was handed over and {ours!r} without (nats: {shown})"
        return (Likeness.UNSURE if near else Likeness.OTHER), words
    if len(handed.tokens) != len(local.tokens) or handed.text != local.text:
        words = f"the answer is {handed.text!r} with the KV that was handed over and {local.text!r} without"
        return Likeness.OTHER, words
    return Likeness.SAME, ""


def _gap(run: Completion, place: int, one: str, other: str) -> float | None:
    """Nats between two tokens in the eyes of one run; None where it did not have both among its alternatives."""
    scores = run.alternatives[place] if place < len(run.alternatives) else {}
    return abs(scores[one] - scores[other]) if one in scores and other in scores else None
