"""Azure is imported by the one call that needs it, after plan, staging and confirmation."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import launcher

ROOT = Path(launcher.__file__).parents[1]
RECIPE = ("gpt/tiny", "cluster=azureml_cpu", "cluster.instance_count=2")
WITHOUT_AZURE = """
import sys
from launcher.cli.main import run
code = run(sys.argv[1:])
azure = sorted(name for name in sys.modules if name.partition(".")[0] in ("azure", "msal", "msrest", "requests"))
assert not azure, azure
raise SystemExit(code)
"""


def without_azure(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURE")}
    return subprocess.run(
        (sys.executable, "-c", WITHOUT_AZURE, *arguments), cwd=cwd, capture_output=True, text=True, check=False,
        env=environment | {"PYTHONPATH": str(ROOT), "LAUNCHER_HOME": str(cwd / "home")}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_dry_run_needs_no_azure(tmp_path: Path) -> None:
    done = without_azure("submit", *RECIPE, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "process_count_per_instance: 1" in done.stdout
    assert "instance_count: 2" in done.stdout


def test_a_submission_nobody_confirms_never_loads_azure(tmp_path: Path) -> None:
    done = without_azure("submit", *RECIPE, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--yes" in done.stderr


def test_eject_writes_files_that_need_neither_us_nor_azure(tmp_path: Path) -> None:
    done = without_azure("eject", "out", *RECIPE, "parallelism=deepspeed_zero1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"job.yaml", "job.json", "code", "environment", "deepspeed_config.json"}
    assert "path: ./environment" in (tmp_path / "out" / "job.yaml").read_text()
    assert (tmp_path / "out" / "code" / "launcher" / "training" / "__main__.py").is_file()


def test_azure_is_imported_in_its_own_folder_alone() -> None:
    for path in (ROOT / "launcher").rglob("*.py"):
        if path.is_relative_to(ROOT / "launcher" / "backends" / "azureml"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(module.partition(".")[0] == "azure" for module in modules), path
