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
_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = 3


def proof_prompt(nonce: int, *, block_size: int, max_tokens: int | None) -> str:
    """Words that nobody has, said once and begun a second time: how they go on stands in the KV alone.

    Longer than one block, as such a word is two tokens or more, and at most `max_tokens` characters: no tokenizer makes
    more tokens of them.
    """
    shuffled = random.Random(nonce)  # noqa: S311 - an order, not a secret
    count = block_size
    if max_tokens is not None:
        characters = (2 * _SYLLABLES + 1) * 3 // 2
        count = min(count, max(2, (max_tokens - PROOF_TOKENS) // (characters + 1)))
    words = [
        "".join(shuffled.choice(_CONSONANTS) + shuffled.choice(_VOWELS) for _ in range(_SYLLABLES))
        for _ in range(count)
    ]
    return " ".join((*words, *words[: count // 2]))


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
