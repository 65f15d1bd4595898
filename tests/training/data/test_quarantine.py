from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from launcher.training.data.corpus import open_corpora
from launcher.training.data.errors import DataError
from launcher.training.data.prepare import prepare, record_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.recipe.schema import Recipe


@pytest.fixture
def shards(make_recipe: Callable[..., Recipe], tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe over four shards of 100 bytes and an end."""
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(str(number) * 100)
        prepare([tmp_path / f"{number}.txt"], tmp_path / f"shard-{number}")

    def recipe(**changes: Any) -> Recipe:
        keys = {"train": (str(tmp_path / "shard-*.idx"),), "validation_fraction": 0, "seq_length": 10} | changes
        return make_recipe(**keys)

    return recipe


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_truncated_shard_stops_the_run_by_default(shards: Callable[..., Recipe], tmp_path: Path) -> None:
    truncate(tmp_path / "shard-1.bin")
    with pytest.raises(DataError, match=r"shard-1\.bin has 182 bytes, expected 202"):
        open_corpora(shards(), cache=tmp_path / "cache")


@pytest.mark.parametrize("spoil", [truncate, lambda path: path.unlink()])
def test_a_bad_shard_within_the_limit_is_left_out_and_told(
    shards: Callable[..., Recipe], tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path / "shard-1.bin")
    with caplog.at_level(logging.WARNING):
        corpora = open_corpora(shards(quarantine_limit=1), cache=tmp_path / "cache")
    assert len(corpora.train) == 30  # 10 windows a shard
    assert ord("1") not in corpora.train.batch(range(30))
    assert "shard-1.bin" in corpora.quarantined[0].what
    assert "left out" in caplog.text
    assert "shard-1.bin" in caplog.text


def test_one_more_than_the_limit_stops_the_run_and_names_them_all(
    shards: Callable[..., Recipe], tmp_path: Path
) -> None:
    for number in (0, 2):
        truncate(tmp_path / f"shard-{number}.bin")
    with pytest.raises(DataError) as caught:
        open_corpora(shards(quarantine_limit=1), cache=tmp_path / "cache")
    assert [fault.what.split(" has ")[0][-11:] for fault in caught.value.faults] == ["shard-0.bin", "shard-2.bin"]


@pytest.mark.parametrize("file", ["bin", "idx"])
def test_a_flipped_bit_is_found_when_digests_are_verified(
    shards: Callable[..., Recipe], tmp_path: Path, file: str
) -> None:
    flip_a_bit(tmp_path / f"shard-3.{file}")
    with pytest.raises(DataError, match=rf"shard-3\.{file}"):
        open_corpora(shards(verify="digest"), cache=tmp_path / "cache")


def test_whole_shards_pass_verification(shards: Callable[..., Recipe], tmp_path: Path) -> None:
    assert len(open_corpora(shards(verify="digest"), cache=tmp_path / "cache").train) == 40


def test_a_shard_without_a_record_cannot_be_verified(shards: Callable[..., Recipe], tmp_path: Path) -> None:
    record_file(tmp_path / "shard-2").unlink()
    with pytest.raises(DataError, match=r"shard-2 has no record of its digests"):
        open_corpora(shards(verify="digest"), cache=tmp_path / "cache")


def test_no_shard_left_is_an_error_whatever_the_limit(shards: Callable[..., Recipe], tmp_path: Path) -> None:
    for number in range(4):
        truncate(tmp_path / f"shard-{number}.bin")
    with pytest.raises(DataError):
        open_corpora(shards(quarantine_limit=9), cache=tmp_path / "cache")


def test_leaving_a_shard_out_changes_the_digest(shards: Callable[..., Recipe], tmp_path: Path) -> None:
    whole = open_corpora(shards(quarantine_limit=1), cache=tmp_path / "cache").digest
    truncate(tmp_path / "shard-1.bin")
    assert open_corpora(shards(quarantine_limit=1), cache=tmp_path / "cache").digest != whole
