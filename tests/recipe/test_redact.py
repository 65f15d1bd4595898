"""Secrets are taken out of whatever is shown."""

from __future__ import annotations

import json

import pytest

from launcher.recipe.fields import every_key
from launcher.recipe.redact import names_a_secret, redact, redact_override, redact_text


def test_the_reported_recipe_shows_none_of_its_secrets() -> None:
    # Case M08, re-typed: four literals that a dry run printed.
    recipe = {
        "logging": {"hf_token": "hf_TESTTESTTEST", "wandb_token": "abc123", "comet_token": ""},
        "environment": {"variables": {"AZURE_STORAGE_KEY": "k123", "NCCL_DEBUG": "INFO"}},
        "headers": {"Authorization": "Bearer xyz"},
    }

    shown = json.dumps(redact(recipe))

    assert [secret for secret in ("hf_TESTTESTTEST", "abc123", "k123", "xyz") if secret in shown] == []
    assert redact(recipe)["logging"] == {"hf_token": "[REDACTED]", "wandb_token": "[REDACTED]", "comet_token": ""}
    assert redact(recipe)["environment"]["variables"]["NCCL_DEBUG"] == "INFO"


def test_the_recipe_itself_keeps_its_secrets() -> None:
    recipe = {"HF_TOKEN": "hf_TESTTESTTEST"}
    redact(recipe)

    assert recipe == {"HF_TOKEN": "hf_TESTTESTTEST"}


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_CLIENT_SECRET",
        "DB_PASSWORD",
        "apiKey",
        "storage-key",
        "Authorization",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name",
    ["text_key", "tokenizer", "train_tokens", "NCCL_DEBUG", "monkey", "seed", "num_key_value_heads", "ssh_public_key"],
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert not names_a_secret(name)


def test_no_key_of_ours_names_a_secret() -> None:
    assert [key for key in every_key() if names_a_secret(key.rsplit(".", 1)[-1])] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hf_abcdefghijklmnopqrstuvwxyz", "[REDACTED]"),
        ("curl -H 'Authorization: Bearer abc.def'", "curl -H 'Authorization: [REDACTED]"),
        ("https://user:pa55@host/x", "https://[REDACTED]@host/x"),
        (
            "https://a.blob.core.windows.net/c?sv=1&sig=aBc%3D&se=2",
            "https://a.blob.core.windows.net/c?sv=1&[REDACTED]&se=2",
        ),
        ("AccountName=x;AccountKey=aBc123==;Suffix=y", "AccountName=x;[REDACTED];Suffix=y"),
        ("ghp_0123456789abcdefghij", "[REDACTED]"),
        ("azureml:corpus:3", "azureml:corpus:3"),
        ("/mnt/ckpt/step=100-loss=2.1.ckpt", "/mnt/ckpt/step=100-loss=2.1.ckpt"),
        ("", ""),
    ],
)
def test_secrets_inside_a_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_arguments_after_a_secret_flag() -> None:
    arguments = ["--hf-token", "abc123", "--api_key=def456", "--steps", "10"]

    assert redact({"arguments": arguments})["arguments"] == [
        "--hf-token",
        "[REDACTED]",
        "--api_key=[REDACTED]",
        "--steps",
        "10",
    ]


def test_a_word_of_the_command_line() -> None:
    assert redact_override("environment.variables.HF_TOKEN=abc") == "environment.variables.HF_TOKEN=[REDACTED]"
    assert redact_override("environment.variables.HF_TOKEN=") == "environment.variables.HF_TOKEN="
    assert redact_override("training.seed=1") == "training.seed=1"
