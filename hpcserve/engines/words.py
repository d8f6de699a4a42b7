"""Engine arguments as users write them: words of an argv, `--block-size 32` or `--block_size=32`."""

from collections.abc import Sequence

__all__ = ["option_name", "option_value"]


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
