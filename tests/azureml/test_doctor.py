from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.backends.azureml.doctor import examine

if TYPE_CHECKING:
    from tests.emulated import Inside

ROOT = Path(__file__).parents[2]


def test_with_nothing_configured_it_ends_at_once_and_says_what_is_missing_and_how_to_mend_it(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    done = subprocess.run(
        (sys.executable, "-m", "launcher", "doctor"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert time.monotonic() - began < 3
    assert "FAIL  workspace" in done.stdout
    assert "AZUREML_ARM_WORKSPACE_NAME" in done.stdout
    assert "skip  sign-in" in done.stdout


def checks() -> dict[str, tuple[str, str, str | None]]:
    return {check.name: (check.level, check.what, check.suggestion) for check in examine()}


def test_inside_a_workspace_everything_is_looked_at(inside: Inside) -> None:
    pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
    found = checks()
    assert {name: level for name, (level, _, _) in found.items()} == dict.fromkeys(
        ("versions", "sign-in", "clock", "workspace", "role", "registry", "datastore", "quota"), "ok"
    )
    assert "service principal" in found["sign-in"][1]
    assert not any("launcher/doctor/" in name for name in inside.emulator.blobs.names("azureml-blobstore", "launcher/"))


def test_a_wrong_secret_fails_the_sign_in_and_skips_the_rest(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity", reason="the azure extra is not installed")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "not-it")
    found = checks()
    assert found["sign-in"][0] == "FAIL"
    assert found["sign-in"][2] == "az login"
    assert any(level == "skip" and "role" in name for name, (level, _, _) in found.items())


def test_a_workspace_that_is_not_there_says_how_to_find_those_that_are(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
    monkeypatch.setenv("AZUREML_ARM_WORKSPACE_NAME", "ml-team")
    level, what, suggestion = checks()["workspace"]
    assert (level, "'ml-team'" in what) == ("FAIL", True)
    assert suggestion


def test_no_gpu_quota_is_a_warning_with_the_place_to_ask(inside: Inside) -> None:
    pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
    inside.settings(default_cores=0)
    level, what, suggestion = checks()["quota"]
    assert level == "warn"
    assert "GPU quota begins at 0" in what
    assert "Quotas" in (suggestion or "")


def test_json_has_the_same_content(inside: Inside, tmp_path: Path) -> None:
    pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
    command = (sys.executable, "-m", "launcher", "doctor", "--json")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["ok"] is True
