from __future__ import annotations

import json

from launcher.plan.planner import make_plan
from launcher.tracking.description import describe, flatten
from tests.plan.recipes import TINY, recipe
from tests.tracking.conftest import job_document


def test_a_key_has_the_recipe_s_own_spelling_and_what_was_not_asked_is_left_out() -> None:
    keys = {
        "model": {"hidden_size": 64, "head_dim": None},
        "training": {"optimizer": {"epsilon": 1e-08}, "compile": False},
    }

    assert flatten(keys) == {
        "model.hidden_size": "64",
        "training.optimizer.epsilon": "1e-08",
        "training.compile": "false",
    }


def test_the_model_comes_first_and_free_text_last() -> None:
    names = list(describe(job_document(), plan=None).parameters)
    sections = list(dict.fromkeys(name.split(".")[0] for name in names))

    assert sections[:5] == ["model", "parallelism", "training", "data", "cluster"]


def test_no_parameter_is_an_address_in_memory() -> None:
    assert not [value for value in describe(job_document(), plan=None).parameters.values() if "0x" in value]


def test_the_plan_is_in_the_parameters_and_whole_in_an_artifact() -> None:
    plan = make_plan(recipe(TINY))
    description = describe(job_document(), plan=plan)

    assert description.parameters["plan.world_size"] == "1"
    assert json.loads(description.artifacts["plan.json"])["plan_digest"] == plan.plan_digest


def test_a_teams_tags_are_kept_but_cannot_take_the_place_of_ours() -> None:
    tags = describe(job_document(tags={"team": "nlp", "recipe": "mine"}), plan=None, attempt=3).tags

    assert (tags["team"], tags["recipe"], tags["attempt"]) == ("nlp", "test", "3")


def test_versions_of_what_computes_are_recorded() -> None:
    environment = json.loads(describe(job_document(), plan=None).artifacts["environment.json"])

    assert environment["python"].count(".") == 2
    assert {"launcher", "torch", "mlflow"} <= set(environment["packages"])


def test_a_secret_is_found_wherever_its_value_turns_up() -> None:
    account = "me:pass+word"
    variables = {"HF_TOKEN": "hf_TESTTESTTEST", "STORE_URL": f"https://{account}@store/x", "LEVEL": "INFO"}
    description = describe(job_document(environment={"variables": variables}), plan=None)

    assert description.secrets == ("hf_TESTTESTTEST", account)
    text = f"INFO hf_TESTTESTTEST https://{account}@store/x?u=me%3Apass%2Bword Bearer xyz"
    assert description.without_secrets(text) == ("INFO [REDACTED] https://[REDACTED]@store/x?u=[REDACTED] [REDACTED]")


def test_a_secret_repeated_in_another_key_is_hidden_there_too() -> None:
    document = job_document(environment={"variables": {"API_KEY": "abc123"}}, description="runs with abc123")

    assert describe(document, plan=None).parameters["description"] == "runs with [REDACTED]"


def test_a_very_short_secret_is_hidden_where_it_stands_and_leaves_other_text_alone() -> None:
    description = describe(job_document(environment={"variables": {"API_KEY": "in"}}), plan=None)

    assert description.parameters["environment.variables.API_KEY"] == "[REDACTED]"
    assert description.without_secrets("training") == "training"
