"""`config.json` as keys that are read with their type checked, every mistake gathered with its place."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpcserve.errors import InputError, Mistake
from hpcserve.model.sparse import CLASS_DEFAULTS

__all__ = ["MOST_LAYERS", "Config"]

_MOST = 10**9  # no count in a config is near it
MOST_LAYERS = 10_000  # nor has any model so many layers; a list is made of them

_LONG_NUMBER = re.compile(r"\d{4000,}")

# Where models of several parts keep the keys of their language model (Transformers' `get_text_config`, and the
# remote code of InternVL, DeepSeek-VL and Qwen-Omni).
_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")


class Config:
    """The keys of one `config.json`. Readers gather mistakes and notes; `finish` raises all mistakes.

    `keys` are those of the language model, which may lie in a section such as `text_config`; `root` is the whole file.
    A key that such a section leaves out has the default of its class in Transformers, as sections are saved without
    what equals it. A key that a whole file leaves out is missing.
    """

    def __init__(self, text: str, *, source: str) -> None:
        """Raises InputError where the text is not a JSON object."""
        self._text = text
        self._source = source
        self.mistakes: list[Mistake] = []
        self.notes: list[str] = []
        self.root: Mapping[str, Any] = self._parsed()
        self.keys, self.section = self._language_keys()
        defaults = CLASS_DEFAULTS.get(str(self.keys.get("model_type")), {}) if self.section else {}
        self._defaults: Mapping[str, int] = defaults

    @property
    def nested(self) -> bool:
        """Whether the language model's keys lie in a section of the file."""
        return self.section != ""

    def _parsed(self) -> Mapping[str, Any]:
        if self._text.startswith("\ufeff"):  # which Transformers refuses as well
            remedy = "save the file without it"
            self._add(1, 1, "a byte order mark", "UTF-8 without one was wanted", remedy)
            raise InputError(self.mistakes)
        try:
            keys = json.loads(self._text)
        except json.JSONDecodeError as error:
            self._add(error.lineno, error.colno, f"not JSON: {error.msg}", "a JSON object was wanted", "fetch it again")
        except RecursionError:
            self._add(1, 1, "brackets in brackets without end", "a JSON object was wanted", "fetch it again")
        except ValueError:  # what Python refuses to make a number of: sys.int_info.default_max_str_digits
            match = _LONG_NUMBER.search(self._text)
            found = f"a number of {len(match[0])} digits" if match is not None else "a number of thousands of digits"
            place = self._place(match.start() if match is not None else 0)
            self._add(*place, found, "the numbers of a config.json were wanted", "fetch it again")
        else:
            if isinstance(keys, dict):
                return keys
            self._add(1, 1, "no JSON object", "the keys of a config.json were wanted", "name the model's directory")
        raise InputError(self.mistakes)

    def _language_keys(self) -> tuple[Mapping[str, Any], str]:
        keys, section = self.root, ""
        for _ in range(2):  # thinker_config holds a text_config
            for name in _SECTIONS:
                inner = keys.get(name)
                if isinstance(inner, dict):
                    keys, section = inner, name
                    break
        return keys, section

    def get(self, *names: str) -> Any:
        """The value of the first of `names` that is there and not null; else its class default, or None."""
        for name in names:
            if self.keys.get(name) is not None:
                return self.keys[name]
        for name in names:
            if name in self._defaults and name not in self.keys:
                note = f"`{name}` is not in `{self.section}`: {self._defaults[name]}, the default of its class"
                if note not in self.notes:
                    self.notes.append(note)
                return self._defaults[name]
        return None

    def count(self, *names: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number above 0; `default` where no key is there or all are null. A mistake is noted, reads as 1."""
        value = self.get(*names)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most:
            return value
        key = next((name for name in names if self.keys.get(name) is not None), names[0])
        found = f"`{key}` is missing" if value is None else f"`{key}` is {json.dumps(value)[:60]}"
        remedy = "fetch the whole config.json" if value is None else "correct it"
        self.refuse(key, found, wanted=f"a whole number from 1 to {most} was wanted", remedy=remedy)
        return 1

    def texts(self, name: str) -> Sequence[str] | None:
        """A list of words; None where the key is absent or null. Anything else is a mistake and reads as None."""
        value = self.get(name)
        if value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            return value
        self.refuse(name, f"`{name}` is {json.dumps(value)[:60]}", wanted="a list of words was wanted")
        return None

    def refuse(self, key: str, found: str, *, wanted: str, remedy: str = "this version knows no other way") -> None:
        """Note a mistake at the place of `key`, in the language model's section where it is there."""
        start = self._index(self.section, 0) if self.nested else 0
        index = self._index(key, start) or self._index(key, 0)
        self._add(*self._place(index), found, wanted, remedy)

    def finish(self) -> None:
        """Raise InputError with every mistake that was noted, if any."""
        if self.mistakes:
            raise InputError(self.mistakes)

    def _place(self, index: int) -> tuple[int, int]:
        """Line and column of a character, from 1."""
        return self._text.count("\n", 0, index) + 1, index - self._text.rfind("\n", 0, index)

    def _index(self, key: str, start: int) -> int:
        match = re.compile(rf'"{re.escape(key)}"\s*:').search(self._text, start)
        return match.start() if match else 0

    def _add(self, line: int, column: int, found: str, wanted: str, remedy: str) -> None:
        mistake = Mistake(file=self._source, line=line, column=column, found=found, wanted=wanted, remedy=remedy)
        if mistake not in self.mistakes:  # a key can be read by several rules
            self.mistakes.append(mistake)
