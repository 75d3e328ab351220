"""JSON, TOML and YAML of strangers: what costs or means too much is refused with its line, the rest is read."""

import datetime
from pathlib import Path

import pytest

from omni_kit.documents import DocumentError, check_yaml, read_json, read_mapping, read_toml, read_yaml, yaml_scalar
from omni_kit.errors import BadInput

_PAIRS = list(zip("abcdefgh", "bcdefghi", strict=True))
_BOMB = "a: &a [x]\n" + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in _PAIRS)
_MERGES = "a: &a {x: 1}\n" + "".join(f"{new}: &{new}\n  <<: [{', '.join([f'*{old}'] * 9)}]\n" for old, new in _PAIRS)


@pytest.mark.parametrize(("text", "line", "why"), [
    (_BOMB, 6, "aliases repeat too much"),
    (_MERGES, 11, "aliases repeat too much"),
    ("x: 1\na: &a [*a]", 2, "contains itself"),
    ("a: &a\n  <<: *a", 2, "contains itself"),
    ("[" * 5000, 1, "nested more than"),
    ("\n".join(" " * depth + "a:" for depth in range(900)), 100, "nested more than"),
    ("x: 1\nd: 2024-02-31", 2, "day is out of range"),
    ("a: " + "1" * 6000, 1, "Exceeds the limit"),
    ("a: !!int x", 1, "invalid literal"),
    ("a: !mine x", 1, "could not determine a constructor"),
    ("a: !!python/object/apply:os.system [ls]", 1, "could not determine a constructor"),
    ("a: [1, 2", 1, "expected ',' or ']'"),
    ("a: 1\n---\nb: 2", 1, "several documents"),
    ("a: \0", 1, "special characters"),
])  # fmt: skip
def test_yaml_that_is_refused(text: str, line: int, why: str) -> None:
    with pytest.raises(DocumentError, match=why) as error:
        read_yaml(text)
    assert error.value.line == line


def test_yaml_that_is_read() -> None:
    text = "base: &base {a: 1}\nmore: {<<: *base, b: 2024-01-31}\nagain: [*base, *base]\n"
    assert read_yaml(text)["more"] == {"a": 1, "b": datetime.date(2024, 1, 31)}
    assert read_yaml("") is None
    check_yaml("a: !mine\n  - 1\n---\nb: !other {c: 1}\n")


def test_an_alias_of_an_earlier_document_is_none() -> None:
    with pytest.raises(DocumentError, match="undefined alias"):
        check_yaml("a: &a 1\n---\nb: *a\n")


@pytest.mark.parametrize(("text", "line", "why"), [
    ("[" * 100_000, 1, "nested too deeply"), ("1" * 6000, 1, "Exceeds the limit"), ('{\n"a": }', 2, "Expecting value"),
])  # fmt: skip
def test_json_that_is_refused(text: str, line: int, why: str) -> None:
    with pytest.raises(DocumentError, match=why) as error:
        read_json(text)
    assert error.value.line == line


@pytest.mark.parametrize(("text", "line", "why"), [
    ("a = " + "[" * 100_000, 1, "nested too deeply"), ("a = " + "1" * 6000, 1, "Exceeds the limit"),
    ("a = 1\nb = 2024-02-31", 2, "Invalid date"), ("a = ", 1, "Invalid value"),
])  # fmt: skip
def test_toml_that_is_refused(text: str, line: int, why: str) -> None:
    with pytest.raises(DocumentError, match=why) as error:
        read_toml(text)
    assert error.value.line == line


@pytest.mark.parametrize("value", [
    "plain", "./a b/c", "a: b", "#", "a #b", "on", "1", "~", "", "&a", "*a", "x\nevil: 1", "\u2028\x85\0", "a'\"",
    "- x", "y " * 9000, 1, True, None, 0.5,
])  # fmt: skip
def test_a_value_in_one_line_of_yaml(value: object) -> None:
    text = yaml_scalar(value)
    assert len(text.splitlines()) <= 1
    assert read_yaml(f"a: {text}  # comment\nb: 1\n") == {"a": value, "b": 1}
    assert read_yaml(f"? {text}\n: b\n") == {value: "b"}


def test_plain_values_stay_plain() -> None:
    assert [yaml_scalar(value) for value in ("./model_checkpoint/transformer", "sdpa")] == [
        "./model_checkpoint/transformer",
        "sdpa",
    ]


@pytest.mark.parametrize(("name", "text", "said"), [
    ("train.yaml", "a:\n  - b\n c: 1\n", ":3: expected <block end>"),
    ("train.yaml", "", ":1: a mapping is needed, not nothing"),
    ("toy_config.json", '{\n "a": 1,\n 2}', ":3: Expecting property name"),
    ("toy_config.json", "[1]", ":1: a mapping is needed, not list"),
    ("answers.toml", "[a]\nb\n", ":2: Expected '='"),
])  # fmt: skip
def test_a_file_that_holds_no_mapping_is_named_with_its_line(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        read_mapping(tmp_path / name)
    assert f"{tmp_path / name}{said}" in str(refused.value)


def test_a_mapping_is_read_by_the_suffix_of_its_file(tmp_path: Path) -> None:
    for name, text in (("a.json", '{"a": 1}'), ("a.toml", "a = 1"), ("a.yaml", "a: 1")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_mapping(tmp_path / name) == {"a": 1}
