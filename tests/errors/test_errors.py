import re

import hpcserve.errors
from hpcserve.errors import HpcserveError, InputError, Mistake


def tree(root: type[HpcserveError]) -> list[type[HpcserveError]]:
    return [root, *(below for child in root.__subclasses__() for below in tree(child))]


def test_each_error_has_its_own_exit_code_and_stands_in_the_drawn_tree() -> None:
    drawn = dict(re.findall(r"(\w+Error)\s+exit (\d+)", hpcserve.errors.__doc__ or ""))
    found = {kind.__name__: str(kind.exit_code) for kind in tree(HpcserveError) if kind.__module__ == "hpcserve.errors"}
    assert found == drawn
    assert len(set(found.values())) == len(found)


def test_an_error_shows_message_and_remedy() -> None:
    assert str(HpcserveError("no such job", remedy="see `hpcserve status`")) == "no such job; see `hpcserve status`"
    assert str(HpcserveError("no such job")) == "no such job"


def test_an_input_error_shows_all_mistakes_in_file_order() -> None:
    def mistake(line: int) -> Mistake:
        return Mistake(file="a.yaml", line=line, column=3, found="x", wanted="y was wanted", remedy="do z")

    error = InputError([mistake(7), mistake(2)])
    assert str(error) == "a.yaml:2:3: x; y was wanted; do z\na.yaml:7:3: x; y was wanted; do z"


def test_a_mistake_is_one_line_without_control_characters_whatever_was_found() -> None:
    mistake = Mistake(file="a.yaml", line=1, column=2, found="`a\nb\x1b[31m\u2028é`", wanted="y", remedy="z")
    assert str(mistake) == r"a.yaml:1:2: `a\nb\x1b[31m\u2028é`; y; z"
