"""Words on the command line that are refused, and in which words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.compose.composer import compose
from launcher.errors import RecipeError
from launcher.recipe.fields import every_key

SLASH = "has a slash; a key has dots"
FIXED = "would change which keys there are; a recipe's keys are fixed"
SEVERAL = "has several values"
CODE = "would run code; recipes are data"
RESOLVER = "calls a resolver; recipes are data"
FIRST = "is neither the recipe (which comes first) nor key=value"


@pytest.mark.parametrize(
    ("word", "what", "suggestion"),
    [
        # Case H03: Hydra's own advice, +cluster/nodes=4, would hide the typo.
        ("cluster/instance_count=4", f"cluster/instance_count {SLASH}", "cluster.instance_count=4"),
        ("cluster/nodes=4", f"cluster/nodes {SLASH}", "cluster.instance_count=4"),
        ("optim/lr=0.1", f"optim/lr {SLASH}", "training.optimizer.learning_rate=0.1"),
        ("cluster.node=4", "unknown key cluster.node", "did you mean cluster.instance_count?"),
        ("seed=3", "unknown key seed", "did you mean training.seed?"),
        ("clutser=nd_h100_v5", "unknown key clutser", "did you mean cluster?"),
        ("optimizer/adam=1", "there is no group optimizer/adam", None),
        ("+training.new=1", f"+ {FIXED}", "training.new=1"),
        ("++training.seed=1", f"+ {FIXED}", "training.seed=1"),
        ("~training.seed", f"~ {FIXED}", "training.seed=null"),
        ("training.seed=1,2", f"training.seed {SEVERAL}", None),
        ("training.seed=range(1,3)", f"training.seed {SEVERAL}", None),
        ("data.train_weights=1,2", f"data.train_weights {SEVERAL}", None),
        ("cluster=nd_h10_v5", "there is no cluster nd_h10_v5", None),
        ("cluster=a,b", "'a,b' is not the name of a cluster", None),
        ("model=../../etc/passwd", "'../../etc/passwd' is not the name of a model", None),
        ("model=/etc/passwd", "'/etc/passwd' is not the name of a model", None),
        ("recipe=nowhere.yaml", "there is no file nowhere.yaml", "nowhere, if a recipe is meant"),
        ("model@other=gpt/13b", "model@other: a choice stays in its own section", None),
        ("hydra.run.dir=/tmp/x", "hydra.run.dir is Hydra's own setting, no key of a recipe", None),
        ("hydra/launcher=joblib", "hydra/launcher is Hydra's own setting, no key of a recipe", None),
        ("training={seed: 1}", "'{seed: 1}' is not the name of a training", None),
        (
            "training.optimizer=adam",
            "training.optimizer is a section; set one of its keys",
            "training.optimizer.KEY=VALUE",
        ),
        ("training.seed=[1", "the value of training.seed cannot be read", None),
        ("training.seed: 3", f"training.seed: 3 {FIRST}", "training.seed=3"),
        ("--follow", f"--follow {FIRST}", None),
        ("name=${oc.env:HOME}", f"${{oc.env:HOME}} {RESOLVER}", None),
        ("environment.variables.X=${oc.decode:x}", f"${{oc.decode:x}} {RESOLVER}", None),
        ("bf16=maybe", "bf16=maybe: maybe has no equivalent; write training.precision", None),
        ("parallelism.deepspeed={_target_: os.system}", f"parallelism.deepspeed._target_ {CODE}", None),
        ("parallelism.deepspeed._target_=os.system", f"parallelism.deepspeed._target_ {CODE}", None),
        ("parallelism.deepspeed={a: [{_args_: [1]}]}", f"parallelism.deepspeed.a._args_ {CODE}", None),
        ("training.seed=" + "[" * 100 + "]" * 100, "a value nests more than 64 levels deep", None),
        ("description=" + "x" * 70000, "a word of 70012 characters is no override", None),
    ],
)
def test_a_wrong_word_is_refused(word: str, what: str, suggestion: str | None) -> None:
    with pytest.raises(RecipeError) as refused:
        compose(["gpt/tiny", word])

    (fault,) = refused.value.faults
    assert fault.what == what
    assert suggestion is None or fault.suggestion == suggestion
    assert fault.where is not None
    assert fault.where.startswith("command line: ")


def test_an_unknown_recipe_names_its_neighbours() -> None:
    with pytest.raises(RecipeError) as refused:
        compose(["gpt/13c"])

    (fault,) = refused.value.faults
    assert fault.what == "there is no recipe gpt/13c"
    assert fault.suggestion is not None
    assert fault.suggestion.startswith("gpt/13b")


def test_an_unknown_choice_names_its_neighbours_ready_to_paste() -> None:
    with pytest.raises(RecipeError) as refused:
        compose(["gpt/tiny", "cluster=nd_h10_v5"])

    assert refused.value.faults[0].suggestion == "cluster=nd_h100_v5 or cluster=nd_h200_v5 or cluster=nc_h100_v5"


def test_all_wrong_words_are_told_at_once() -> None:
    with pytest.raises(RecipeError) as refused:
        compose(["gpt/13c", "cluster.node=4", "training.seed=1,2", "+a=1"])

    assert len(refused.value.faults) == 4


@pytest.mark.parametrize(
    "words",
    [
        ["parallelism.tp=2", "parallelism.tensor_parallel_size=4"],
        ["tp=2", "tensor_model_parallel_size=2"],
        ["model=gpt/13b", "model=gpt/125m"],
    ],
)
def test_one_thing_said_twice_is_refused(words: list[str]) -> None:
    with pytest.raises(RecipeError, match="both set") as refused:
        compose(["gpt/tiny", *words])

    assert refused.value.faults[0].where == f"command line: {words[0]} {words[1]}"


def test_the_same_key_again_is_a_change_of_mind() -> None:
    assert compose(["gpt/tiny", "training.seed=1", "training.seed=2"]).recipe.training.seed == 2


def test_a_secret_is_not_repeated_in_an_error() -> None:
    with pytest.raises(RecipeError) as refused:
        compose(
            ["gpt/tiny", "environment.variables.HF_TOKEN=hf_TESTTESTTEST${oc.env:X}", "environment.HF_TOKEN=abc123"]
        )

    assert "TESTTEST" not in repr(refused.value.faults)
    assert "abc123" not in repr(refused.value.faults)


_words = st.builds(
    "{}{}{}".format,
    st.sampled_from([*every_key(), "model", "tags.x", "?"]),
    st.sampled_from(["=", ""]),
    st.text(max_size=12),
)


@settings(max_examples=60, deadline=None)
@given(words=st.lists(_words | st.text(max_size=10), max_size=3))
def test_any_words_compose_or_are_refused_with_words(words: list[str]) -> None:
    try:
        compose(["gpt/tiny", *words])
    except RecipeError as refused:
        assert all(fault.what for fault in refused.faults)
