"""A folder is a checkpoint when its manifest is whole, and not otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from launcher.training.checkpoint.manifest import MANIFEST, Manifest, damage, folder_name, newest, read_manifest, render
from launcher.training.checkpoint.storage import Written, write_whole

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_OF_TEN = Manifest(
    step=10, tokens=2560, data_position=80, layout={"engine": "ddp"}, recipe={"name": "tiny"}, recipe_digest="ab" * 32,
    attempt=1, random="none", data_digest="cd" * 32, losses={"first": 5.5, "last": 4.0}, scalars={}, files=(),
)  # fmt: skip


def put(directory: Path, step: int, token: str = "00000a") -> Path:
    folder = directory / folder_name(step, token)
    folder.mkdir(parents=True)
    file = write_whole(folder / "rank-00000.safetensors", lambda: [b"0123456789"])
    (folder / MANIFEST).write_text(render(replace(MANIFEST_OF_TEN, step=step, files=(file,))))
    return folder


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    folder = put(tmp_path, 10)
    manifest = read_manifest(folder)
    assert manifest is not None
    assert replace(manifest, files=()) == MANIFEST_OF_TEN


def test_the_newest_whole_one_is_found_without_any_pointer(tmp_path: Path) -> None:
    put(tmp_path, 10)
    last = put(tmp_path, 20)
    (tmp_path / folder_name(30, "00000b")).mkdir()
    assert newest(tmp_path) == (last, read_manifest(last))


@pytest.mark.parametrize("keep", range(0, 400, 13))
def test_a_manifest_torn_anywhere_is_none(tmp_path: Path, keep: int) -> None:
    folder = put(tmp_path, 10)
    text = (folder / MANIFEST).read_text()
    assert keep < len(text)
    (folder / MANIFEST).write_text(text[:keep])
    assert read_manifest(folder) is None


def test_a_flipped_digit_in_a_manifest_breaks_its_seal(tmp_path: Path) -> None:
    folder = put(tmp_path, 10)
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"data_position": 80', '"data_position": 81'))
    assert read_manifest(folder) is None


def test_damage_tells_missing_short_and_changed_files_apart(tmp_path: Path) -> None:
    folder = put(tmp_path, 10)
    manifest = read_manifest(folder)
    assert manifest is not None
    shard = folder / "rank-00000.safetensors"
    assert damage(folder, manifest.files) is None
    shard.write_bytes(b"012345678X")
    assert "SHA-256 differs" in (damage(folder, manifest.files) or "")
    shard.write_bytes(b"01234")
    assert "has 5 bytes, 10 were written" in (damage(folder, manifest.files) or "")
    shard.unlink()
    assert damage(folder, manifest.files) == "rank-00000.safetensors is missing"


def test_a_file_list_reads_back_with_sizes_and_digests(tmp_path: Path) -> None:
    manifest = read_manifest(put(tmp_path, 10))
    assert manifest is not None
    # SHA-256 of the ten digits, from sha256sum.
    digest = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"
    assert manifest.files == (Written(name="rank-00000.safetensors", bytes=10, sha256=digest),)
