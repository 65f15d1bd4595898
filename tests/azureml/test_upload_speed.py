"""Five thousand files, twice: nothing is sent the second time; and how long it takes beside a plain MLClient submit."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from launcher.backends.azureml.backend import AzureMLBackend
from launcher.backends.azureml.environments import definition
from tests.azureml.jobs import tiny_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.emulated import Inside

ml = pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")


def tree(root: Path, files: int) -> Path:
    """A git checkout of ``files`` small modules."""
    for number in range(files):
        path = root / f"package{number % 50}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"value_{number}_{line} = {line * number}\n" for line in range(40)))
    (root / "entry.py").write_text("print(1)\n")
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x")):
        subprocess.run(("git", "-C", str(root), *words), check=True)
    return root


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def code_bytes(inside: Inside) -> int:
    return sum(size for method, path, size in inside.requests() if method == "PUT" and "-upload/" in path)


@pytest.mark.slow
@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_five_thousand_files_are_sent_once_in_half_the_time_of_a_plain_submit(inside: Inside, tmp_path: Path) -> None:
    root = tree(tmp_path / "code", 5000)
    job = tiny_job(root, entry={"script": "entry.py"})
    second_job = replace(job, name=job.name.removesuffix("-1") + "-2", attempt=2)
    AzureMLBackend().submit(tiny_job(tmp_path / "code" / "package0"))  # imports, environment, sign-in

    inside.ask("traffic/clear")
    first = timed(lambda: AzureMLBackend().submit(job))
    assert code_bytes(inside) > 5_000_000
    inside.ask("traffic/clear")
    second = timed(lambda: AzureMLBackend().submit(second_job))
    assert code_bytes(inside) == 0

    client = AzureMLBackend().client().sdk
    plain_job = ml.command(
        name="plain", code=str(root), command="python entry.py", environment=definition("cpu").reference,
        instance_type="Standard_D4s_v3", instance_count=1,
    )  # fmt: skip
    plain = timed(lambda: client.jobs.create_or_update(plain_job))
    print(f"first {first:.1f} s, second {second:.1f} s, plain MLClient {plain:.1f} s: {first / plain:.2f} of it")
    assert first <= 0.5 * plain
