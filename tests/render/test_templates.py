"""The template rules, and that the shipped templates keep them."""

import re
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from hpcserve.errors import InputError
from hpcserve.render import MEASURE_TEMPLATE_NAMES, TEMPLATE_NAMES
from hpcserve.render.shell import ShellText
from hpcserve.render.templates import render_template

FOLDER = Path(__file__).parents[2] / "job_templates"


def rendered(text: str, **values: object) -> str:
    return render_template("x.sh.j2", templates={"x.sh.j2": text}, values=values)


def refusal(text: str, **values: object) -> tuple[str, int, str]:
    with pytest.raises(InputError) as caught:
        rendered(text, **values)
    (mistake,) = caught.value.mistakes
    return mistake.file, mistake.line, mistake.found


def test_values_are_quoted_without_asking() -> None:
    assert (
        rendered("echo {{ name }} {{ count }}\n", name="a b; rm -rf $HOME", count=3) == "echo 'a b; rm -rf $HOME' 3\n"
    )


def test_text_built_in_code_passes_as_it_is_and_nothing_else_does() -> None:
    assert rendered("{{ line | raw }}", line=ShellText('"a b"')) == '"a b"'
    assert "raw" in refusal("\n{{ line | raw }}", line="a b")[2]


def test_an_undefined_name_is_told_with_template_and_line() -> None:
    assert refusal("#!/bin/bash\n\necho {{ partiton }}\n") == ("x.sh.j2", 3, "'partiton' is undefined")


def test_a_syntax_error_is_told_with_template_and_line() -> None:
    file, line, found = refusal("#!/bin/bash\n{% for a in b %}\n{{ a }\n{% endfor %}\n", b=())
    assert (file, line) == ("x.sh.j2", 3)
    assert found


@pytest.mark.parametrize("value", [None, True, 1.5, ["a"]])
def test_what_has_no_plain_form_is_refused_with_its_line(value: object) -> None:
    assert refusal("one\n{{ value }}\n", value=value)[:2] == ("x.sh.j2", 2)


def test_nul_is_refused_with_its_line() -> None:
    file, line, found = refusal("one\n\nexport A={{ value }}\n", value="a\0b")
    assert (file, line) == ("x.sh.j2", 3)
    assert "NUL" in found


def test_a_template_with_dos_line_ends_gives_plain_ones() -> None:
    assert rendered("#!/bin/bash\r\necho {{ a }}\r\n", a="x") == "#!/bin/bash\necho x\n"


def test_the_shipped_templates_are_the_ones_that_are_rendered() -> None:
    assert {path.name for path in FOLDER.glob("*.j2")} == {*TEMPLATE_NAMES, *MEASURE_TEMPLATE_NAMES}


@pytest.mark.parametrize("name", sorted({*TEMPLATE_NAMES, *MEASURE_TEMPLATE_NAMES}))
def test_shipped_templates_decide_nothing(name: str) -> None:
    tree = jinja2.Environment(autoescape=False).parse((FOLDER / name).read_text(encoding="utf-8"))  # noqa: S701 - parsed, not run
    forbidden = (
        nodes.BinExpr,
        nodes.Compare,
        nodes.Not,
        nodes.CondExpr,
        nodes.Assign,
        nodes.Macro,
        nodes.Call,
        nodes.Test,
        nodes.Getitem,
        nodes.Getattr,
    )
    found = [type(node).__name__ for node in tree.find_all(forbidden)]
    assert found == []
    assert all(isinstance(node.test, nodes.Name) for node in tree.find_all(nodes.If))


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_no_value_of_a_shipped_template_stands_in_quotes(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    strings = [
        string
        for line in text.splitlines()
        if not line.startswith("#")
        for string in re.findall(r"""\"[^"]*\"|'[^']*'""", line)
    ]
    assert [string for string in strings if "{{" in string] == []
