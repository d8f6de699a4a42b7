"""Engine arguments as users write them: words of an argv, `--block-size 32` or `--block_size=32`."""

import re
from collections.abc import Sequence

__all__ = ["option_count", "option_name", "option_value"]

_WITH_SUFFIX = re.compile(r"(\d+)(\.\d+)?([kmgt])", re.ASCII | re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def option_name(word: str) -> str | None:
    """The option that an argv word names, in dashes; None where it names none. vLLM takes underscores for dashes."""
    if not word.startswith("--"):
        return None
    return word.partition("=")[0].replace("_", "-")


def option_value(words: Sequence[str], name: str) -> str | None:
    """The value that the last mention of option `name` gives it, as argparse reads it; None where it is not given."""
    value: str | None = None
    for index, word in enumerate(words):
        if option_name(word) != name:
            continue
        _, equals, tail = word.partition("=")
        if equals:
            value = tail
        elif index + 1 < len(words):
            value = words[index + 1]
        else:
            value = ""
    return value


def option_count(words: Sequence[str], name: str) -> int | None:
    """The number above 0 that the last mention of option `name` gives it; None where there is none.

    As vLLM 0.32 reads a number of tokens (`human_readable_int`): 8192, 8K (of 1,024), 8k and 25.6k (of 1,000).
    """
    text = (option_value(words, name) or "").strip()
    match = _WITH_SUFFIX.fullmatch(text)
    if match is None:
        count = int(text) if text.isascii() and text.isdigit() else 0
    elif match[3].islower():
        count = int(float(match[1] + (match[2] or "")) * 1000 ** _POWERS[match[3]])
    else:
        count = 0 if match[2] else int(match[1]) * 1024 ** _POWERS[match[3].lower()]
    return count or None
