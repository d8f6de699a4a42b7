import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from hpcserve.errors import InputError
from hpcserve.nouns import FORMS, Name, Noun, Service, Site, Sweep
from hpcserve.wire import Complaint, UnreadableRecordError, decode_record, decode_yaml, encode_record, encode_yaml
from tests.strategies import services, sites


class Inner(Noun):
    word: str
    number: int = 1


class Outer(Noun):
    name: str
    count: Annotated[int, Field(gt=0)]
    share: float = 0.5
    flag: bool = False
    note: str | None = None
    inner: Inner | None = None
    items: tuple[Inner, ...] = ()
    words: dict[str, str] = Field(default_factory=dict)


def read(text: str) -> Outer:
    return decode_yaml(Outer, text, source="f.yaml")


def refused(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_plain_values() -> None:
    outer = read(
        "name: a\ncount: 3\nshare: 0.25\nflag: true\nnote: ~\ninner: {word: b}\nitems: [{word: c, number: 2}]\n"
    )
    assert outer == Outer(
        name="a", count=3, share=0.25, flag=True, inner=Inner(word="b"), items=(Inner(word="c", number=2),)
    )


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        ("hpcserve.service/1", "this is a service file, name a site file"),
        ("hpcserve.site/2", "use the hpcserve that this file was written for"),
    ],
)
def test_a_file_of_another_schema_is_one_mistake(schema: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_yaml(Site, f"name: chat\nschema: {schema}\npools: []\n", source="f.yaml")
    (mistake,) = caught.value.mistakes
    assert str(mistake).startswith(f'f.yaml:2:9: `schema` is text "{schema}"; hpcserve.site/1 was wanted; {remedy}')


def test_a_schema_of_nothing_hides_no_other_mistake() -> None:
    with pytest.raises(InputError) as caught:
        decode_yaml(Site, "name: chat\nschema: hpcserve.sit/1\npools: []\n", source="f.yaml")
    told = [str(mistake) for mistake in caught.value.mistakes]
    assert any("did you mean `hpcserve.site/1`?" in line for line in told)
    assert any("unknown key `pools`" in line for line in told)


@pytest.mark.parametrize(
    "word", ["no", "on", "yes", "Off", "1:30:00", "012", "1e3", "0x10", "2024-01-01", ".inf", "1_000"]
)
def test_what_yaml_1_1_would_turn_into_something_else_stays_text(word: str) -> None:
    assert read(f"name: {word}\ncount: 1").name == word


@pytest.mark.parametrize("word", ["no", "1:30:00", "012", "1e3", "0x10", "+", "'3'", "1.0", "true", "null", "9" * 5000])
def test_what_is_no_whole_number_is_refused_as_one(word: str) -> None:
    [mistake] = refused(f"name: a\ncount: {word}")
    assert mistake.startswith("f.yaml:2:8: `count` is ")
    assert len(mistake) < 250


@pytest.mark.parametrize("word", ["yes", "no", "on", "1", "'true'"])
def test_only_true_and_false_are_booleans(word: str) -> None:
    [mistake] = refused(f"name: a\ncount: 1\nflag: {word}")
    assert "true or false was wanted" in mistake


def test_unknown_keys_are_refused_with_the_nearest_one() -> None:
    assert refused("nmae: a\ncount: 1\ninner: {wrod: b}") == [
        "f.yaml:1:1: the file has no `name`; it is required; add `name:`",
        "f.yaml:1:1: unknown key `nmae`; a known key was wanted; did you mean `name`?",
        "f.yaml:3:1: `inner` has no `word`; it is required; add `word:`",
        "f.yaml:3:9: unknown key `wrod`; a known key was wanted; did you mean `word`?",
    ]


def test_a_site_file_with_typos() -> None:
    """Keys that other tools drop silently."""
    with pytest.raises(InputError) as caught:
        decode_yaml(Service, "partiton: h100\ngpus_per_nodes: 8\ntime: 1:30:00\naccount: no\n", source="site.yaml")
    text = str(caught.value)
    assert "site.yaml:1:1: unknown key `partiton`; a known key was wanted; did you mean `partition`?" in text
    assert "site.yaml:2:1: unknown key `gpus_per_nodes`" in text
    assert "site.yaml:3" not in text
    assert "site.yaml:4" not in text


def test_a_key_twice_names_both_lines() -> None:
    [mistake] = refused("name: a\ncount: 1\nname: b")
    assert mistake.startswith("f.yaml:3:1: `name` a second time")
    assert "line 1" in mistake


def test_mistakes_in_lists_have_their_own_places() -> None:
    text = "name: a\ncount: 0\nitems:\n  - word: x\n    number: y\n  - number: 2\n"
    assert [mistake.split(": ")[0] for mistake in refused(text)] == ["f.yaml:2:8", "f.yaml:5:13", "f.yaml:6:5"]


def test_checks_of_a_room_come_with_those_of_the_schema() -> None:
    def check(raw: Mapping[str, Any]) -> Iterator[Complaint]:
        yield Complaint(path=("items", 0, "word"), found="x", wanted="y was wanted", remedy="write y")
        yield Complaint(path=("inner",), found="none", wanted="one was wanted", remedy="add it", at_key=True)
        assert raw["name"] == "a"

    with pytest.raises(InputError) as caught:
        decode_yaml(Outer, "name: a\ncount: x\ninner: null\nitems:\n- word: b", source="f.yaml", check=check)
    assert [(mistake.line, mistake.column) for mistake in caught.value.mistakes] == [(2, 8), (3, 1), (5, 9)]


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{','.join(['*' + chr(97 + level)] * 9)}]\n" for level in range(8)
)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "- 1",
            "word",
            "a: [",
            "\ta: 1",
            "a: 'x",
            "\x00",
            "a: \x07",
            "%YAML 9.9\n---\na: 1",
            "a: *x",
            "a: b\n---\nc: d",
        ),
        *("[" * 3000, "{a: " * 3000, "- " * 3000, "a: &a [*a]", "? [a]\n: 1", BOMB),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_such_file_is_refused_in_few_words(text: str) -> None:
    mistakes = refused(text)
    assert mistakes
    assert all(len(mistake) < 400 for mistake in mistakes)


def test_no_tag_builds_anything() -> None:
    [mistake] = refused("name: !!python/object/apply:os.getcwd x\ncount: 1\n")
    assert "the tag `tag:yaml.org,2002:python/object/apply:os.getcwd`; plain YAML was wanted" in mistake


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        read(text)


@given(st.text(alphabet=" -[]{}:,&*!|>'\"#%@\n\tab01~?", max_size=40))
def test_any_punctuation_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        read("name: a\ncount: 1\n" + text)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(name=texts, note=st.none() | texts, words=st.dictionaries(texts, texts, max_size=3), share=st.floats(0, 1e300))
def test_any_text_in_any_field_is_read_back_unchanged(
    name: str, note: str | None, words: dict[str, str], share: float
) -> None:
    outer = Outer(name=name, count=1, note=note, words=words, share=share)
    assert decode_record(Outer, encode_record(outer)) == outer
    assert decode_yaml(Outer, encode_yaml(outer), source="f.yaml") == outer


@settings(deadline=None)
@given(site=sites(joined=False), service=services())
def test_nouns_are_read_back_from_both_forms(site: Site, service: Service) -> None:
    assert decode_yaml(Site, encode_yaml(site), source="s") == site
    assert decode_record(Site, encode_record(site)) == site
    assert decode_yaml(Service, encode_yaml(service), source="s") == service
    assert encode_record(decode_record(Service, encode_record(service))) == encode_record(service)


@given(cut=st.integers(0, 40), junk=st.binary(max_size=8))
def test_a_torn_record_says_so_in_one_line(cut: int, junk: bytes) -> None:
    whole = encode_record(Outer(name="a", count=1))
    torn = whole[: min(cut, len(whole) - 4)] + junk
    try:
        decode_record(Outer, torn)
    except UnreadableRecordError as error:
        assert "\n" not in str(error)  # noqa: PT017 - junk may complete the record
        assert str(error).startswith("not a Outer")  # noqa: PT017


@given(line=st.integers(0, 20), column=st.integers(0, 10))
def test_places_are_where_the_value_is(line: int, column: int) -> None:
    text = "name: a\n" + "\n" * line + "count:" + " " * (column + 1) + "x\n"
    [mistake] = refused(text)
    assert mistake.startswith(f"f.yaml:{line + 2}:{column + 8}: ")


class Limited(Noun):
    name: Name = "a"
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    words: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)
    numbers: tuple[Annotated[int, Field(ge=0, lt=8)], ...] = ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "name: a b",
            '`name` is text "a b"; a name of letters, digits, `.`, `-` and `_` was wanted, a letter or digit',
        ),
        ("name: [a]", "`name` is a list of 1; text was wanted; correct `name`"),
        ("name: 3", "`name` is number 3; text was wanted; put it in quotes if it is meant as text"),
        ("share: 1.5", "`share` is number 1.5; at most 1.0 was wanted; correct `share`"),
        ("share: 0", "`share` is number 0; more than 0.0 was wanted; correct `share`"),
        ("share: 1.0e999", "`share` is number Infinity; at most 1.0 was wanted"),
        ("words: []", "`words` is a list of 0; a list of at least 1 was wanted; correct `words`"),
        ("numbers: [1, -1]", "`numbers[1]` is number -1; at least 0 was wanted; correct `numbers[1]`"),
        ("numbers: [8]", "`numbers[0]` is number 8; less than 8 was wanted; correct `numbers[0]`"),
    ],
)
def test_limits_and_forms_are_told_in_words(line: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_yaml(Limited, line, source="f.yaml")
    [mistake] = caught.value.mistakes
    assert said in str(mistake)


def test_every_pattern_of_a_noun_has_words() -> None:
    patterns = set(re.findall(r'"pattern":\s*"((?:[^"\\]|\\.)*)"', json.dumps([
        kind.model_json_schema() for kind in (Service, Site, Sweep)
    ])))  # fmt: skip
    assert {json.loads(f'"{pattern}"') for pattern in patterns} <= set(FORMS)
    assert len(patterns) >= 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml:1:1: nothing; the keys of a outer were wanted; write `name:`, `count:`"),
        (
            "name: !!python/object:os.system x\ncount: 1",
            "f.yaml:1:7: the tag `tag:yaml.org,2002:python/object:os.system`",
        ),
        ("name: a\ncount: 1\n---\nname: b", "f.yaml:3:1: expected a single document in the stream, but found another"),
    ],
)
def test_what_is_more_or_less_than_one_plain_document_is_refused(text: str, said: str) -> None:
    assert said in refused(text)[0]
