"""References between keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.compose.references import hide, refusals, resolve, reveal
from launcher.errors import RecipeError


def test_a_whole_reference_keeps_the_type_and_a_part_becomes_text() -> None:
    tree = {"a": {"n": 3, "on": True, "x": 1e-4}, "b": "${a.n}", "c": "n=${a.n}, on=${a.on}, x=${a.x}", "d": ["${b}"]}

    assert resolve(tree) == {
        "a": {"n": 3, "on": True, "x": 1e-4},
        "b": 3,
        "c": "n=3, on=true, x=0.0001",
        "d": [3],
    }


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("${a.b}", False),
        ("${{inputs.x}} and ${a}", False),
        (r"\${HOME}", False),
        ("$HOME $(x) {a}", False),
        ("${oc.env:HOME}", True),
        ("${oc.env:HOME,x}", True),
        ("${any.thing:}", True),
        ("${a.${b}}", True),
        ("${${a}:b}", True),
        ("${.a}", True),
        ("${..a}", True),
        ("${a[0]}", True),
        ("${}", True),
        ("${a", True),
        ("${ a }", True),
        ("${a:${{x}}}", True),
    ],
)
def test_only_plain_references_pass(text: str, refused: bool) -> None:
    assert bool(refusals(text)) is refused


def test_a_chain_of_references_has_an_end() -> None:
    tree = {f"k{index}": f"${{k{index + 1}}}" for index in range(100)} | {"k100": 1}

    with pytest.raises(RecipeError, match="refers through more than 64 keys"):
        resolve(tree)


def test_a_reference_to_a_required_key_that_is_not_set_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"a refers to \$\{b\}, which is not set"):
        resolve({"a": "${b}", "b": "???"})


@given(text=st.text(alphabet="${}\\:.abé_ \n", max_size=30))
def test_what_is_hidden_from_hydra_comes_back_as_it_was(text: str) -> None:
    assert "${" not in hide(text)
    assert reveal(hide(text)) == text


@given(values=st.dictionaries(st.sampled_from("abc"), st.text(alphabet="${}abc.\\", max_size=12), min_size=1))
def test_any_references_are_filled_in_or_refused(values: dict[str, str]) -> None:
    try:
        resolved = resolve(dict(values))
    except RecipeError as refused:
        assert refused.faults
    else:
        assert resolved.keys() == values.keys()
