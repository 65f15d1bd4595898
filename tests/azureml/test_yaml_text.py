from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.azureml.yaml_text import to_yaml

TEXT = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\x85\u2028\u2029\ufeff"))
VALUES = st.recursive(
    TEXT | st.integers() | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8
)


@given(st.dictionaries(TEXT, VALUES))
def test_what_is_written_is_what_is_read(document: dict[str, object]) -> None:
    assert yaml.safe_load(to_yaml(document)) == document  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "word", ["no", "Yes", "null", "1e3", "0x10", "012", "1:30", "~", "-", "a: b", "a #b", "*x", "!t"]
)
def test_text_that_yaml_reads_otherwise_is_quoted(word: str) -> None:
    assert yaml.safe_load(to_yaml({"key": word})) == {"key": word}


def test_lines_are_in_the_order_given_and_plain_where_that_is_safe() -> None:
    assert to_yaml({"b": "azureml:x:1", "a": {"count": 2, "on": True}, "l": ["x", {"k": "v"}], "e": {}}) == (
        'b: azureml:x:1\na:\n  count: 2\n  "on": true\nl:\n  - x\n  -\n    k: v\ne: {}\n'
    )
