"""What there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.compose import library

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compose.conftest import Team


def test_groups_and_names_come_from_folders(team: Team) -> None:
    team("optimizer/adam", "{}\n")
    folder = team("recipe/speech/small", "description: 'Ours, small'\n")

    assert "optimizer" in library.groups(library.search_path([folder]))
    assert {"speech/small", "gpt/13b"} <= set(library.recipe_names([folder]))


def test_a_choice_tells_its_description_and_its_file(team: Team) -> None:
    folder = team("recipe/speech/small", "# @package _global_\ndescription: 'Ours, small'\n")

    (choice,) = [choice for choice in library.group_choices("recipe", [folder]) if choice.name == "speech/small"]

    assert choice.description == "Ours, small"
    assert choice.shown == "team/recipe/speech/small.yaml"


def test_without_a_description_the_first_comment_speaks() -> None:
    (choice,) = [choice for choice in library.group_choices("cluster") if choice.name == "nd_h100_v5"]

    assert choice.description == "Standard_ND96isr_H100_v5: 8 x H100 SXM5 80GB, 8 x 400 Gb/s InfiniBand."


def test_sizes_are_sorted_as_numbers() -> None:
    names = [name for name in library.recipe_names() if name.startswith("gpt/") and name != "gpt/tiny"]

    assert names == [
        "gpt/125m",
        "gpt/350m",
        "gpt/774m",
        "gpt/1.3b",
        "gpt/1.5b",
        "gpt/6.7b",
        "gpt/13b",
        "gpt/175b",
        "gpt/1t",
    ]


@pytest.mark.parametrize("relative", ["../secret.yaml", "a/../../secret.yaml", "/etc/passwd", "a\0b", "\\x"])
def test_nothing_outside_a_folder_is_found(relative: str, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("a: 1")
    (tmp_path / "root" / "a").mkdir(parents=True)

    assert list(library.find([tmp_path / "root"], relative)) == []


def test_a_link_that_leads_outside_is_no_choice(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("a: 1")
    (tmp_path / "root" / "model").mkdir(parents=True)
    (tmp_path / "root" / "model" / "link.yaml").symlink_to(tmp_path / "secret.yaml")

    assert library.choice_names("model", [tmp_path / "root"]) == ()
    assert list(library.find([tmp_path / "root"], "model/link.yaml")) == []
