"""Text that is safe in a shell script."""

import shlex
from collections.abc import Iterable

__all__ = [
    "ShellText",
    "UnquotableError",
    "as_comment",
    "home_path",
    "in_comment",
    "quoted",
    "words",
    "wrapped_command",
]


class UnquotableError(ValueError):
    """A value that no shell quoting can carry; says which and why."""


class ShellText(str):
    """Shell text that was built in code and goes into a script as it is."""

    __slots__ = ()


def quoted(value: str) -> ShellText:
    """One shell word that bash reads back as exactly `value`; raises UnquotableError where there is none."""
    if "\0" in value:
        raise UnquotableError(f"{value!r} contains NUL, which no argument or environment variable can hold")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UnquotableError(f"{value!r} is not valid text: {error.reason}") from None
    return ShellText(shlex.quote(value))


def words(values: Iterable[str]) -> ShellText:
    """Each value as one shell word, with a space between."""
    return ShellText(" ".join(quoted(value) for value in values))


def home_path(path: str) -> ShellText:
    """A path as one shell word, in which a leading `~` is the home of whoever runs the script."""
    if path == "~":
        return ShellText('"$HOME"')
    if path.startswith("~/"):
        return ShellText('"$HOME"/' + quoted(path.removeprefix("~/")))
    return quoted(path)


def wrapped_command(argv: Iterable[str]) -> ShellText:
    """A command over several lines: every option, with its values, on a line of its own."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(quoted(word))
    return ShellText(" \\\n    ".join(" ".join(line) for line in lines))


def in_comment(text: str) -> ShellText:
    """Text inside a comment line: characters that do not print are shown by their code, so none can end the line."""
    return ShellText("".join(mark if mark.isprintable() else f"<{ord(mark):#x}>" for mark in text))


def as_comment(text: str) -> ShellText:
    """Every line of `text` as a comment line."""
    return ShellText("\n".join(f"# {in_comment(line)}".rstrip() for line in text.rstrip("\n").split("\n")))
