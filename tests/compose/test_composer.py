"""What the words on the command line make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hydra.core.global_hydra import GlobalHydra

from launcher.compose.composer import compose
from launcher.errors import RecipeError, UsageError
from launcher.recipe.codec import encode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compose.conftest import Team


def test_a_recipe_a_cluster_and_two_keys_compose_as_anyone_would_hope() -> None:
    composed = compose(
        ["recipe=gpt/13b", "cluster=nd_h100_v5", "cluster.instance_count=16", "parallelism.tensor_parallel_size=8"]
    )

    recipe = composed.recipe
    assert recipe.name == "gpt/13b"
    assert (recipe.model.hidden_size, recipe.model.num_hidden_layers) == (5120, 40)
    assert recipe.cluster.instance_type == "Standard_ND96isr_H100_v5"
    assert recipe.cluster.instance_count == 16
    assert recipe.parallelism.tensor_parallel_size == 8
    assert composed.notes == ()


def test_the_first_word_is_short_for_the_recipe() -> None:
    assert compose(["gpt/13b"]).recipe == compose(["recipe=gpt/13b"]).recipe


def test_no_word_composes_the_default_choices() -> None:
    composed = compose([])

    assert composed.recipe.name == "unnamed"
    assert composed.choices["model"] == "gpt/tiny"


def test_the_command_line_beats_the_recipe_s_own_choice() -> None:
    composed = compose(["gpt/13b", "cluster=local_cpu"])

    assert composed.choices["cluster"] == "local_cpu"
    assert composed.recipe.cluster.backend == "local"
    assert composed.recipe.cluster.instance_count == 1  # no count of the recipe's own cluster leaks


def test_a_cluster_brings_its_environment_unless_one_is_named() -> None:
    assert compose(["gpt/tiny", "cluster=nd_gb200_v6"]).recipe.environment.name == "cuda_arm64"
    assert compose(["gpt/tiny", "cluster=nd_gb200_v6", "environment=cpu"]).recipe.environment.name == "cpu"
    assert compose(["gpt/13b", "cluster=local_cpu"]).recipe.environment.name == "cpu"


def test_an_equals_sign_in_a_value_is_part_of_it() -> None:
    # Case H07: bare Hydra says "mismatched input '=' expecting <EOF>".
    path = "/mnt/ckpt/step=100-loss=2.1.ckpt"

    assert compose(["gpt/tiny", f"model.init_from={path}"]).recipe.model.init_from == path
    assert compose(["gpt/tiny", f"entry.arguments=[--from,{path}]"]).recipe.entry.arguments == ("--from", path)


@pytest.mark.parametrize(
    "text",
    [
        "it's, all: {of} it",
        "a,b",
        "null-ish",
        "012",
        "true",
        r"C:\dir\\",
        "x\\'y",
        "",
        "  spaced  ",
        "ünï",
        "$HOME",
        "[a]",
    ],
)
def test_text_is_taken_as_typed(text: str) -> None:
    assert compose(["gpt/tiny", f"description={text}"]).recipe.description == text
    assert compose(["gpt/tiny", f"environment.variables.X={text}"]).recipe.environment.variables == {"X": text}


def test_quotes_around_a_text_are_the_shell_s_habit_not_part_of_it() -> None:
    assert compose(["gpt/tiny", "description='two words'"]).recipe.description == "two words"


def test_null_takes_an_optional_text_back() -> None:
    assert compose(["gpt/tiny", "cluster.compute=gpu", "cluster.compute=null"]).recipe.cluster.compute is None


def test_azure_expressions_stay_and_references_are_filled_in(team: Team) -> None:
    # Case H08: OmegaConf 2.3.1 says GrammarParseError to the first argument.
    folder = team(
        "recipe/mine",
        """
        defaults:
          - override /model: gpt/tiny
        entry:
          script: train.py
          arguments:
            - --data=${{inputs.corpus}}
            - $[[--x ${{inputs.x}}]]
            - --model ${model.model_type} of ${{inputs.y}} \\${HOME}
            - ${model.vocab_size}
        training:
          seed: ${model.vocab_size}
        """,
    )

    recipe = compose(["mine"], recipe_dirs=[folder]).recipe

    assert recipe.entry.arguments == (
        "--data=${{inputs.corpus}}",
        "$[[--x ${{inputs.x}}]]",
        "--model gpt2 of ${{inputs.y}} ${HOME}",
        "2048",
    )
    assert recipe.training.seed == 2048


def test_references_and_expressions_work_on_the_command_line_too() -> None:
    words = ["gpt/tiny", "training.seed=${model.vocab_size}", "entry.arguments=[${{inputs.a}},n=${training.seed}]"]

    recipe = compose(words).recipe

    assert recipe.training.seed == 2048
    assert recipe.entry.arguments == ("${{inputs.a}}", "n=2048")


def test_keys_of_the_users_own_are_added_and_kept(team: Team) -> None:
    folder = team("recipe/mine", "environment: {variables: {A: 1, B: 2}}\n")

    recipe = compose(
        [
            "mine",
            "environment.variables.B=3",
            "tags.team=speech",
            "parallelism.deepspeed.zero_optimization.overlap_comm=true",
        ],
        recipe_dirs=[folder],
    ).recipe

    assert recipe.environment.variables == {"A": "1", "B": "3"}
    assert recipe.tags == {"team": "speech"}
    assert recipe.parallelism.deepspeed == {"zero_optimization": {"overlap_comm": True}}


def test_a_team_s_file_stands_before_ours_and_says_so(team: Team) -> None:
    # Case H05: Hydra's searchpath would let the packaged file win.
    folder = team(
        "model/gpt/13b", "{hidden_size: 2048, num_hidden_layers: 2, num_attention_heads: 16, vocab_size: 1000}\n"
    )

    composed = compose(["gpt/13b"], recipe_dirs=[folder])

    assert composed.recipe.model.hidden_size == 2048
    assert composed.notes == (f"{folder}/model/gpt/13b.yaml stands before recipes/model/gpt/13b.yaml",)
    assert "team/model/gpt/13b.yaml" in composed.origins.files()
    assert compose(["gpt/125m"], recipe_dirs=[folder]).recipe.model.hidden_size == 768  # only in the package


def test_the_first_of_several_folders_wins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "training").mkdir(parents=True)
        (tmp_path / name / "training" / "mine.yaml").write_text(
            f"{{seq_length: 64, global_batch_size: 8, train_steps: 1, seed: {len(name)}}}"
        )
    (tmp_path / "one" / "training" / "mine.yaml").write_text("{seq_length: 64, global_batch_size: 8, seed: 1}")

    assert compose(["training=mine"], recipe_dirs=[tmp_path / "one", tmp_path / "two"]).recipe.training.seed == 1


def test_a_recipe_may_be_a_file_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "my recipe.v2.yaml"
    path.write_text("defaults: [override /model: llama/tiny]\ndescription: mine\n")

    composed = compose([str(path), "training.seed=3"])

    assert composed.recipe.model.model_type == "llama"
    assert composed.recipe.description == "mine"
    assert composed.choices["recipe"] == str(path)
    assert composed.origins.locate("description") == f"{path}:2"


def test_a_recipe_may_build_on_another(team: Team) -> None:
    team("recipe/speech/long", "defaults: [/recipe/gpt/13b]\ntraining: {seq_length: 4096}\n")
    folder = team("recipe/speech/wide", "defaults: [speech/long, override /model: gpt/6.7b]\ndescription: wide\n")

    recipe = compose(["speech/wide"], recipe_dirs=[folder]).recipe

    assert (recipe.name, recipe.description) == ("speech/wide", "wide")
    assert (recipe.training.seq_length, recipe.training.optimizer.learning_rate) == (4096, 1e-4)
    assert recipe.model.hidden_size == 4096  # 6.7B


def test_a_choice_by_half_its_name_is_refused_with_the_whole(team: Team) -> None:
    team("recipe/speech/long", "{}\n")
    folder = team("recipe/speech/wide", "description: wide\ndefaults:\n  - long\n")

    with pytest.raises(RecipeError, match="there is no recipe long") as refused:
        compose(["speech/wide"], recipe_dirs=[folder])

    assert refused.value.faults[0].where == "team/recipe/speech/wide.yaml:3"
    assert refused.value.faults[0].suggestion == "did you mean speech/long?"


def test_a_folder_that_is_not_there_is_a_wrong_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        compose(["gpt/tiny"], recipe_dirs=[tmp_path / "nowhere"])


def test_foreign_words_are_read_with_a_note(team: Team) -> None:
    folder = team("recipe/ported", "trainer: {num_nodes: 2}\nparallelism: {tensor_model_parallel_size: 4}\n")

    composed = compose(["ported", "cluster=nd_h100_v5", "lr=1e-4", "gradient_checkpointing=true"], recipe_dirs=[folder])

    recipe = composed.recipe
    assert (recipe.cluster.instance_count, recipe.parallelism.tensor_parallel_size) == (2, 4)
    assert (recipe.training.optimizer.learning_rate, recipe.training.activation_checkpointing) == (1e-4, "full")
    assert composed.notes == (
        "command line: lr=1e-4 is read as training.optimizer.learning_rate=1e-4",
        "command line: gradient_checkpointing=true is read as training.activation_checkpointing=full",
        "team/recipe/ported.yaml:1: trainer.num_nodes is read as cluster.instance_count",
        "team/recipe/ported.yaml:2: parallelism.tensor_model_parallel_size is read as parallelism.tensor_parallel_size",
    )
    assert composed.origins.locate("parallelism.tensor_parallel_size") == "team/recipe/ported.yaml:2"


def test_a_later_file_or_the_command_line_settles_steps_against_tokens() -> None:
    composed = compose(["gpt/13b", "training.train_steps=100"])

    assert (composed.recipe.training.train_steps, composed.recipe.training.train_tokens) == (100, None)
    assert composed.notes == (
        "training.train_steps=100 replaces training.train_tokens=300000000000 (recipes/training/gpt3.yaml:6)",
    )


def test_steps_and_tokens_said_together_both_stay_for_the_plan_to_refuse() -> None:
    training = compose(["gpt/13b", "training.train_steps=100", "training.train_tokens=100"]).recipe.training

    assert (training.train_steps, training.train_tokens) == (100, 100)


def test_five_faults_are_five_faults_each_with_its_line(team: Team) -> None:
    folder = team(
        "recipe/wrong",
        """
        model:
          hidden_size: wide
        training:
          precision: bf61
          micro_batchsize: 4
        cluster:
          instance_count: 0
        """,
    )

    with pytest.raises(RecipeError) as refused:
        compose(["wrong", "training.seed=-1"], recipe_dirs=[folder])

    assert {(fault.what, fault.where) for fault in refused.value.faults} == {
        ("model.hidden_size is 'wide'", "team/recipe/wrong.yaml:2"),
        ("training.precision is 'bf61'", "team/recipe/wrong.yaml:4"),
        ("unknown key training.micro_batchsize", "team/recipe/wrong.yaml:5"),
        ("training.seed is -1", "command line: training.seed=-1"),
        ("cluster.instance_count is 0", "team/recipe/wrong.yaml:7"),
    }


def test_a_composed_recipe_is_plain_json() -> None:
    assert json.loads(json.dumps(encode(compose(["mixtral/8x7b"]).recipe)))["model"]["num_local_experts"] == 8


def test_someone_else_s_hydra_is_left_as_it_was() -> None:
    from hydra import initialize_config_dir

    from launcher.compose.library import shipped_root

    with initialize_config_dir(str(shipped_root()), version_base="1.3"):
        theirs = GlobalHydra.instance().hydra
        compose(["gpt/tiny"])
        assert GlobalHydra.instance().hydra is theirs
    assert not GlobalHydra.instance().is_initialized()


def test_nothing_is_written_where_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compose(["gpt/tiny"])

    assert list(tmp_path.iterdir()) == []
