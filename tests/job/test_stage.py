from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import launcher
from launcher.errors import ExitCode, PlanError
from launcher.job.stage import DIFF_FILE, Staged, preview, stage, stage_code, write
from launcher.recipe.schema import Entry
from tests.job.secrets import planted

CREDENTIAL_FILES = (
    ".env", ".env.production", "id_rsa", "id_ed25519", "server.pem", "tls.key", "store.p12", ".npmrc", ".pypirc",
    ".netrc", ".git-credentials", "kubeconfig", ".azure/accessTokens.json", ".aws/credentials", ".kube/config",
    ".ssh/config", "gcp-service-account.json", "terraform.tfstate", ".docker/config.json", "sub/.env",
)  # fmt: skip
LAYOUTS: dict[str, dict[str, str]] = {
    "no ignore file": {},
    "gitignore only": {".gitignore": "*.ckpt\n"},
    "amlignore that replaces nothing": {".gitignore": ".env\nid_rsa\n*.pem\n", ".amlignore": "*.ckpt\n"},
    "amlignore that lets everything back in": {".gitignore": "*\n", ".amlignore": "!*\n!.env\n!id_rsa\n"},
}


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
    subprocess.run(("git", *identity, "-C", str(root), *arguments), check=True, capture_output=True)


def tree(root: Path, files: dict[str, str], *, tracked: bool = True) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    if tracked:
        git(root, "init")
        git(root, "add", "--force", "--all")
        git(root, "commit", "--allow-empty", "--message", "x")
    return root


def paths(staged: Staged) -> list[str]:
    return [file.path for file in staged.files]


def test_what_git_tracks_travels_and_an_untracked_file_is_named(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "print(1)\n", "lib/model.py": "x = 1\n"})
    (tmp_path / "notes.txt").write_text("new")

    staged = stage(tmp_path)

    assert paths(staged) == ["lib/model.py", "train.py"]
    assert staged.left_out == {"not tracked by git": 1}
    assert "notes.txt" in staged.notes[0]


def test_an_untracked_file_travels_when_the_recipe_includes_it(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "print(1)\n"})
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "vocab.txt").write_text("a b")
    assert paths(stage(tmp_path, include=("extra",))) == ["extra/vocab.txt", "train.py"]


@pytest.mark.parametrize(
    ("include", "why"), [("../x", "leads out"), ("nothing", "is not there"), (".env", "credential")]
)
def test_an_include_that_cannot_travel_is_refused(include: str, why: str, tmp_path: Path) -> None:
    root = tree(tmp_path / "code", {"train.py": "", ".env": "A=1\n"})
    (tmp_path / "x").write_text("")
    with pytest.raises(PlanError, match=why):
        stage(root, include=(include,))


def test_the_same_content_has_the_same_digest_and_any_change_another(tmp_path: Path) -> None:
    one = stage(tree(tmp_path / "a", {"train.py": "print(1)\n"}))
    two = stage(tree(tmp_path / "b", {"train.py": "print(1)\n"}))
    other = stage(tree(tmp_path / "c", {"train.py": "print(2)\n"}))
    (tmp_path / "b" / "train.py").chmod(0o755)
    executable = stage(tmp_path / "b")
    assert one.digest == two.digest
    assert len({one.digest, other.digest, executable.digest}) == 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "no checkout"])
def test_no_file_named_like_a_credential_travels_whatever_the_ignore_files_say(
    layout: str, tracked: bool, tmp_path: Path
) -> None:
    secrets = {name: "".join(planted(n).values()) for n, name in enumerate(CREDENTIAL_FILES)}
    tree(tmp_path, {"train.py": "print(1)\n", **secrets, **LAYOUTS[layout]}, tracked=tracked)

    staged = stage(tmp_path)

    assert not set(paths(staged)) & set(CREDENTIAL_FILES)
    assert not any(".git/" in path for path in paths(staged))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", planted(0))
def test_a_secret_in_a_tracked_file_stops_the_submission_and_is_named_not_shown(
    kind: str, layout: str, tmp_path: Path
) -> None:
    leak = planted(7)[kind]
    tree(tmp_path, {"train.py": "import os\n", "conf/settings.py": f"x = 1\n{leak}\n", **LAYOUTS[layout]})

    with pytest.raises(PlanError) as caught:
        stage(tmp_path)

    assert caught.value.faults[0].where == "conf/settings.py:2"
    assert caught.value.exit_code is ExitCode.REFUSED
    assert leak not in repr(caught.value.faults)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_behind_a_link_out_of_the_tree_travels(layout: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for n, (kind, leak) in enumerate(planted(5).items()):
        (outside / f"{n}.txt").write_text(f"{kind}\n{leak}\n")
    root = tmp_path / "code"
    (root / "data").mkdir(parents=True)
    for n in range(len(planted(5))):
        (root / "data" / f"link{n}.txt").symlink_to(outside / f"{n}.txt")
    (root / "all").symlink_to(outside)
    (root / "relative.txt").symlink_to("../outside/0.txt")
    tree(root, {"train.py": "print(1)\n", **LAYOUTS[layout]})

    staged = stage(root)

    assert set(paths(staged)) <= {"train.py", *LAYOUTS[layout]}
    assert staged.left_out["links out of the tree"] == len(planted(5)) + 2


def test_a_folder_swapped_for_a_link_after_it_was_tracked_does_not_leak(tmp_path: Path) -> None:
    root = tree(tmp_path / "code", {"train.py": "", "conf/a.txt": "harmless"})
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text("private")
    (root / "conf" / "a.txt").unlink()
    (root / "conf").rmdir()
    (root / "conf").symlink_to(tmp_path / "outside")
    assert paths(stage(root)) == ["train.py"]


def test_a_link_inside_the_tree_travels_as_a_copy_unless_it_leads_to_a_credential(tmp_path: Path) -> None:
    (tmp_path / "latest.py").symlink_to("train.py")
    (tmp_path / "innocent.txt").symlink_to(".env")
    (tmp_path / "broken").symlink_to("nowhere")
    staged = stage(tree(tmp_path, {"train.py": "print(1)\n", ".env": "A=1\n"}))
    assert paths(staged) == ["latest.py", "train.py"]
    assert staged.files[0].content == staged.files[1].content
    assert staged.left_out["links to nothing"] == 1


def test_outside_a_checkout_both_ignore_files_count_and_a_dangling_link_is_harmless(tmp_path: Path) -> None:
    """A08: https://github.com/Azure/azure-sdk-for-python/issues/28035: its own walk counts the ignored bytes."""
    tree(tmp_path, {"train.py": "print(1)\n", ".amlignore": ".venv/\n"}, tracked=False)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/nonexistent")
    with (tmp_path / ".venv" / "big.bin").open("wb") as big:
        big.truncate(400_000_000)

    staged = stage(tmp_path)

    assert paths(staged) == [".amlignore", "train.py"]
    assert staged.total_bytes < 1_000_000


def test_an_ignore_file_above_the_folder_counts_too(tmp_path: Path) -> None:
    """A10: https://github.com/Azure/azure-cli/issues/22967: the CLI reads the ignore file of the code folder only."""
    files = {"src/train.py": "", "src/__pycache__/a.pyc": "x", "src/outputs/2024/x.log": "x", "src/big.ckpt": "x"}
    tree(tmp_path, files | {".gitignore": "__pycache__/\noutputs/\n*.ckpt\n"}, tracked=False)
    assert paths(stage(tmp_path / "src")) == ["train.py"]


def test_amlignore_takes_tracked_files_out(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "", "data/big.txt": "x", ".amlignore": "data/\n"})
    assert paths(stage(tmp_path)) == [".amlignore", "train.py"]


def test_a_find_that_a_person_allowed_passes(tmp_path: Path) -> None:
    tree(tmp_path, {"test_auth.py": planted(1)["github"] + "\n"})
    with pytest.raises(PlanError) as caught:
        stage(tmp_path)
    digest = (caught.value.faults[0].suggestion or "").split("--allow-secret ")[1].split()[0]
    assert paths(stage(tmp_path, allowed_secrets=frozenset({digest}))) == ["test_auth.py"]


def test_too_much_code_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": ""})
    with (tmp_path / "weights.bin").open("wb") as weights:
        weights.truncate(301 * 1024 * 1024)
    with pytest.raises(PlanError, match="301 MiB") as caught:
        stage(tmp_path, include=("weights.bin",))
    assert "weights.bin" in (caught.value.faults[0].suggestion or "")


def test_what_is_written_is_what_was_staged(tmp_path: Path) -> None:
    root = tree(tmp_path / "code", {"lib/a.py": "x = 1\n", "run.sh": "#!/bin/sh\n"})
    (root / "run.sh").chmod(0o755)
    write(stage(root), tmp_path / "copy")
    assert (tmp_path / "copy/lib/a.py").read_text() == "x = 1\n"
    assert os.access(tmp_path / "copy/run.sh", os.X_OK)


def test_the_preview_counts_sizes_and_says_why(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "x" * 2048, ".env": "A=1\n", "a.pem": "x"})
    assert preview(stage(tmp_path)).startswith("1 files, 2 KiB, content ")
    assert "2 left out (2 named like a credential)" in preview(stage(tmp_path))


def test_the_launcher_itself_travels_so_that_the_job_makes_the_same_plan(tmp_path: Path) -> None:
    staged = stage_code(tmp_path, Entry())
    assert "launcher/job/spec.py" in paths(staged)
    assert all(path.startswith("launcher/") for path in paths(staged))
    assert not any("__pycache__" in path or path.startswith("launcher/cli/") for path in paths(staged))


def test_a_folder_that_would_hide_the_launcher_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, {"launcher/__init__.py": ""})
    with pytest.raises(PlanError, match="would hide"):
        stage_code(tmp_path, Entry())


def test_our_own_checkout_is_not_blocked() -> None:
    root = Path(launcher.__file__).parents[1]
    if not (root / ".git").exists():
        pytest.skip("not a checkout")
    assert "launcher/errors.py" in paths(stage_code(root, Entry()))


def test_a_script_that_stays_behind_is_found_before_the_job_is_sent(tmp_path: Path) -> None:
    tree(tmp_path, {"other.py": ""})
    (tmp_path / "train.py").write_text("")
    with pytest.raises(PlanError, match=r"entry.script train.py does not travel") as caught:
        stage_code(tmp_path, Entry(script="train.py"))
    assert caught.value.faults[0].suggestion == "git add train.py"


def test_the_diff_of_a_changed_tree_travels_with_it(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "old\n"})
    (tmp_path / "train.py").write_text("new\n")
    staged = stage_code(tmp_path, Entry(script="train.py"))
    diff = next(file for file in staged.files if file.path == DIFF_FILE)
    assert b"-old\n+new\n" in diff.content


def test_a_secret_that_a_change_removes_does_not_travel_in_the_diff(tmp_path: Path) -> None:
    leak = planted(2)["github"]
    tree(tmp_path, {"train.py": f"{leak}\n"})
    (tmp_path / "train.py").write_text("clean\n")
    staged = stage_code(tmp_path, Entry(script="train.py"))
    assert not any(leak.encode() in file.content for file in staged.files)


def test_the_launchers_own_folder_does_not_travel_even_when_it_lies_in_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHER_HOME", str(tmp_path / "home"))
    tree(tmp_path, {"train.py": "", "home/journal/row.json": "{}"}, tracked=False)
    assert paths(stage(tmp_path)) == ["train.py"]
