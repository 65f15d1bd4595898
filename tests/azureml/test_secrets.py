"""Hundreds of planted secrets, and every place a submission writes to: none of them is anywhere."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pytest

from launcher.backends.azureml.backend import AzureMLBackend
from launcher.errors import PlanError
from launcher.home import home
from launcher.runs.reconcile import submit_journaled
from tests.azureml.jobs import tiny_job
from tests.job.secrets import planted
from tests.job.test_stage import CREDENTIAL_FILES, LAYOUTS, tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")


BLOB = ".blob.core.windows.net/"


def leaks() -> dict[str, str]:
    """Where it is planted -> what: ten secrets in each of twenty files git tracks although nobody should."""
    return {name: "\n".join(list(planted(n).values())[:10]) for n, name in enumerate(CREDENTIAL_FILES)}


def forms(text: str) -> list[bytes]:
    """A secret as it is, in base64, and in a URL."""
    lines = [line for line in text.splitlines() if len(line) > 20]
    return [form for line in lines for form in (line.encode(), base64.b64encode(line.encode()), quote(line).encode())]


def everything_written(inside: Inside, handle: str) -> bytes:
    """Every blob sent since ``traffic/clear``, the job as the service keeps it, and all of this machine's home."""
    emulator = inside.emulator
    sent = [
        unquote(path).split("/", 2)[1:] for method, path, _ in inside.requests() if method == "PUT" and BLOB in path
    ]
    assert sent
    blobs = [emulator.blobs.get(container, name) or b"" for container, name in sent]
    assert all(blobs)
    job = emulator.workspace.jobs[handle.removeprefix("azureml:")]
    files = [path.read_bytes() for path in home().rglob("*") if path.is_file()]
    return b"\n".join([*blobs, json.dumps(job.properties).encode(), *files])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_hundred_secrets_in_files_and_behind_links_are_nowhere(layout: str, inside: Inside, tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", {"key.txt": "".join(planted(99).values())}, tracked=False)
    root = tmp_path / "code"
    root.mkdir()
    (root / "key.txt").symlink_to(outside / "key.txt")
    (root / "folder").symlink_to(outside)
    (root / "innocent.txt").symlink_to(".env")
    tree(root, {"train.py": "print(1)\n", **leaks(), **LAYOUTS[layout]})
    assert sum(len(text.splitlines()) for text in leaks().values()) >= 200

    inside.ask("traffic/clear")
    submission = submit_journaled("azureml", tiny_job(root, entry={"script": "train.py"}))

    written = everything_written(inside, submission.handle)
    for text in (*leaks().values(), *planted(99).values()):
        assert not [form for form in forms(text) if form in written]


@pytest.mark.parametrize("kind", ["openssh key", "azure storage", "azure sas", "github", "password", "url"])
def test_a_secret_in_the_code_stops_everything_and_the_error_does_not_repeat_it(
    kind: str, inside: Inside, tmp_path: Path
) -> None:
    leak, root = planted(11)[kind], tmp_path / "code"
    job = tiny_job(tree(root, {"train.py": "print(1)\n"}), entry={"script": "train.py"})
    (root / "train.py").write_text(f"print(1)\n{leak}\n")
    inside.ask("traffic/clear")

    with pytest.raises(PlanError) as caught:
        AzureMLBackend().submit(job)

    assert caught.value.faults[0].where == "train.py:2"
    assert leak not in repr(caught.value.faults)
    assert inside.requests() == []
