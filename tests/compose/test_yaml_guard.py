"""What a YAML file may say, what it means, and how much of it there may be."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.compose import yaml_guard
from launcher.compose.references import reveal
from launcher.errors import RecipeError

if TYPE_CHECKING:
    from pathlib import Path


def _value(text: str) -> Any:
    return reveal(yaml_guard.parse(f"key: {text}\n".encode(), "x.yaml").content["key"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("300_000_000_000", 300_000_000_000),
        ("1e12", 1e12),  # text to PyYAML, a number to people and to Hydra
        ("6.0e-5", 6e-5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        (".inf", math.inf),  # refused later, by the decoder, with its key
        ("0x10", "0x10"),
        ("2026-11-30", "2026-11-30"),
        ("1.2.3", "1.2.3"),
        ('"012"', "012"),
        ("'yes'", "yes"),
        ("y", "y"),
        ("[1, a, null]", [1, "a", None]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
        ("${a.b}", "${a.b}"),
        ('"\\u00e9"', "é"),
    ],
)
def test_what_a_value_means(text: str, value: Any) -> None:
    assert _value(text) == value
    assert type(_value(text)) is type(value)


@pytest.mark.parametrize("text", ["yes", "No", "ON", "off", "012", "-07", "1:30", "190:20:30.15", "0_1"])
def test_what_readers_disagree_about_is_refused(text: str) -> None:
    with pytest.raises(RecipeError) as refused:
        _value(text)

    assert refused.value.faults[0].where == "x.yaml:1:6"


def test_an_anchor_may_be_used_within_the_limits() -> None:
    content = yaml_guard.parse(b"a: &x {b: 1}\nc: *x\n", "x.yaml").content

    assert content == {"a": {"b": 1}, "c": {"b": 1}}


def test_every_key_has_its_line() -> None:
    lines = yaml_guard.parse(b"# top\na:\n  b: 1\n  c:\n    - {d: 2}\n", "x.yaml").lines

    assert lines == {("a",): 2, ("a", "b"): 3, ("a", "c"): 4, ("a", "c", "0"): 5, ("a", "c", "0", "d"): 5}


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("# @package _global_\na: 1", "_global_"),
        ("# words\n#@package model\na: 1", "model"),
        ("a: 1\n# @package _global_", None),
        ("# a package of things\na: 1", None),
    ],
)
def test_the_package_stands_in_the_header(text: str, header: str | None) -> None:
    assert yaml_guard.parse(text.encode(), "x.yaml").header == header


def test_all_faults_of_a_file_are_told_at_once() -> None:
    with pytest.raises(RecipeError) as refused:
        yaml_guard.parse(b"a: yes\na: 012\n_target_: x\nb: !tag 1\nc: ${oc.env:X}\n", "x.yaml")

    assert [fault.where for fault in refused.value.faults] == [
        "x.yaml:1:4",
        "x.yaml:2:1",  # a is given twice
        "x.yaml:2:4",
        "x.yaml:3:1",
        "x.yaml:4:4",
        "x.yaml:5:4",
    ]


def test_a_file_over_a_mebibyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (1 << 20) + b"\n")

    with pytest.raises(RecipeError, match="larger than 1 MiB"):
        yaml_guard.read(path, "big.yaml")


def test_an_endless_file_is_not_read_to_its_end() -> None:
    from pathlib import Path

    with pytest.raises(RecipeError, match="larger than 1 MiB"):
        yaml_guard.read(Path("/dev/zero"), "zero.yaml")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"a.yaml cannot be read: No such file or directory"):
        yaml_guard.read(tmp_path / "a.yaml", "a.yaml")


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 500_000,
        b"{a: " * 100_000,
        b"- " * 300_000,
        b"a: &a [" + b"1," * 5000 + b"]\nb: [*a, *a]\n",
        b"a: &a {b: *a}\n",
        b"".join(b"k%d: 1\n" % index for index in range(60_000)),
        b"a: &a x\n" + b"b: [" + b"*a," * 20_000 + b"]\n",
    ],
    ids=["brackets", "braces", "dashes", "wide aliases", "recursion", "many keys", "many aliases"],
)
def test_bombs_are_refused_in_under_a_second(bomb: bytes) -> None:
    started = time.process_time()

    with pytest.raises(RecipeError):
        yaml_guard.parse(bomb, "bomb.yaml")

    assert time.process_time() - started < 1.0


_yamlish = st.text(alphabet="ab:-[]{}&*!|>%@`\"'#,?$ \n\t01.eE_~<", max_size=60)


@given(raw=st.binary(max_size=80) | _yamlish.map(str.encode))
def test_any_bytes_are_read_or_refused_with_words(raw: bytes) -> None:
    try:
        document = yaml_guard.parse(raw, "x.yaml")
    except RecipeError as refused:
        assert all(fault.what and (fault.where or "").startswith("x.yaml") for fault in refused.faults)
    else:
        assert isinstance(document.content, dict)
