"""What differs between two recipes."""

from __future__ import annotations

from launcher.recipe.codec import decode
from launcher.recipe.diff import by_tag, changes
from tests.recipe.recipes import small_recipe, with_key


def test_equal_recipes_have_no_changes() -> None:
    assert changes(decode(small_recipe()), decode(small_recipe())) == ()


def test_changes_come_weightiest_first_and_grouped() -> None:
    other = with_key("parallelism.tensor_parallel_size", 2)
    other["training"]["seq_length"] = 64
    other["name"] = "longer"
    other["environment"] = {"variables": {"NCCL_DEBUG": "INFO"}}

    found = changes(decode(small_recipe()), decode(other))

    assert [(change.key, change.tag, change.left, change.right) for change in found] == [
        ("training.seq_length", "convergence", 32, 64),
        ("parallelism.tensor_parallel_size", "mapping", 1, 2),
        ("environment.variables.NCCL_DEBUG", "runtime", None, "INFO"),
        ("name", "metadata", "unnamed", "longer"),
    ]
    assert [change.key for change in by_tag(found)["mapping"]] == ["parallelism.tensor_parallel_size"]
    assert list(by_tag(found[:1])) == ["convergence"]
