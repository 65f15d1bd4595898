"""Whatever a recipe file says, it composes or is refused with words."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.compose import library
from launcher.compose.composer import compose
from launcher.errors import RecipeError
from launcher.recipe.aliases import ALIASES
from launcher.recipe.fields import every_key

_scalars = st.sampled_from(
    ["", "x", "true", "null", "1", "1e3", "${name}", "${training.seed}", "[REDACTED]", "???", "_self_"]
)
_names = st.sampled_from(
    [*(key.rsplit(".", 1)[-1] for key in every_key()), *ALIASES, "model", "training", "_x_", "hydra", "", "a.b", "a b"]
)
_values: st.SearchStrategy[Any] = st.recursive(
    _scalars | st.integers(-2, 9) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names, inner, max_size=2),
    max_leaves=5,
)
_groups = st.sampled_from(
    [*library.groups([library.shipped_root()]), "nowhere", "/model", "override /model", "model@x", "optional data"]
)
_defaults = st.lists(
    _scalars | st.dictionaries(_groups, st.sampled_from(["gpt/tiny", "ddp", "nowhere", None, "???"]), max_size=2),
    max_size=3,
)


@settings(max_examples=30, deadline=None)
@given(content=st.dictionaries(_names, _values, max_size=4), defaults=_defaults | _scalars)
def test_any_file_composes_or_is_refused_with_words(content: dict[str, Any], defaults: Any) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "recipe").mkdir()
        # JSON is YAML.
        (Path(folder) / "recipe" / "any.yaml").write_text(
            json.dumps({"defaults": defaults} | content), encoding="utf-8"
        )
        try:
            compose(["any"], recipe_dirs=[Path(folder)])
        except RecipeError as refused:
            assert all(fault.what and "\n" not in fault.what for fault in refused.faults)
