"""`config.json` as keys that are read with their type checked, every mistake gathered with its place."""

import json
import re
from collections.abc import Mapping
from typing import Any

from hpcserve.errors import InputError, Mistake

__all__ = ["Config"]

_MOST = 10**9  # no count in a config is near it


class Config:
    """The keys of one `config.json`. Readers gather mistakes; `finish` raises them all."""

    def __init__(self, text: str, *, source: str) -> None:
        """Raises InputError where the text is not a JSON object."""
        self._text = text
        self._source = source
        self._mistakes: list[Mistake] = []
        self.keys: Mapping[str, Any] = self._parsed()

    def _parsed(self) -> Mapping[str, Any]:
        try:
            keys = json.loads(self._text)
        except json.JSONDecodeError as error:
            self._add(error.lineno, error.colno, f"not JSON: {error.msg}", "a JSON object was wanted", "fetch it again")
        except (RecursionError, ValueError) as error:  # nested too deeply; a number of thousands of digits
            self._add(1, 1, f"not a config: {error}", "a JSON object was wanted", "fetch it again")
        else:
            if isinstance(keys, dict):
                return keys
            self._add(1, 1, "no JSON object", "the keys of a config.json were wanted", "name the model's directory")
        raise InputError(self._mistakes)

    def count(self, key: str, *, default: int | None = None) -> int:
        """A whole number above 0; `default` where the key is absent or null. A mistake is noted and reads as 1."""
        value = self.keys.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST:
            return value
        found = f"`{key}` is missing" if value is None else f"`{key}` is {json.dumps(value)[:60]}"
        remedy = "fetch the whole config.json" if value is None else "correct it"
        self.refuse(key, found, wanted="a whole number above 0 was wanted", remedy=remedy)
        return 1

    def refuse(self, key: str, found: str, *, wanted: str, remedy: str = "this version knows no other way") -> None:
        """Note a mistake at the place of `key`."""
        match = re.search(rf'"{re.escape(key)}"\s*:', self._text)
        index = match.start() if match else 0
        line_start = self._text.rfind("\n", 0, index) + 1
        self._add(self._text.count("\n", 0, index) + 1, index - line_start + 1, found, wanted, remedy)

    def finish(self) -> None:
        """Raise InputError with every mistake that was noted, if any."""
        if self._mistakes:
            raise InputError(self._mistakes)

    def _add(self, line: int, column: int, found: str, wanted: str, remedy: str) -> None:
        self._mistakes.append(
            Mistake(file=self._source, line=line, column=column, found=found, wanted=wanted, remedy=remedy)
        )
