from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.training.data.corpus import open_corpora
from launcher.training.data.errors import DataError
from launcher.training.data.indexed import IndexedWriter
from launcher.training.data.loader import micro_batches
from launcher.training.data.prepare import prepare
from launcher.training.data.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.recipe.schema import Recipe


def numbered(prefix: Path, tokens: int) -> str:
    """A corpus of one document whose tokens are 0, 1, 2, ...: a window tells where it came from."""
    with IndexedWriter(prefix, vocab_size=200_000) as writer:
        writer.add_tokens(np.arange(tokens - 1))
        writer.end_document(np.array([tokens - 1]))
    return str(prefix)


def test_without_a_corpus_there_is_nothing_to_read(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.train names nothing to read"):
        open_corpora(make_recipe(train=()), cache=tmp_path)


def test_the_demo_is_read_and_its_end_held_out(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    corpora = open_corpora(make_recipe(seq_length=256), cache=tmp_path)
    # 466,855 tokens; 5 % held out: floor(23,342.75) = 23,342. floor((443,513 - 1) / 256) and floor((23,342 - 1) / 256).
    assert corpora.validation is not None
    assert (len(corpora.train), len(corpora.validation)) == (1732, 91)
    assert corpora.tokenizer_description == "bytes, 257 tokens"
    batch = corpora.train.batch([0, 1, 2])
    assert batch.shape == (3, 257)
    assert batch.dtype == np.int64


def test_a_batch_is_readable_text(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    corpora = open_corpora(make_recipe(seq_length=64, vocab_size=512, tokenizer="bpe", shuffle=False), cache=tmp_path)
    assert corpora.tokenizer_folder is not None
    text = load_tokenizer(corpora.tokenizer_folder).decode(corpora.train.batch([0])[0])
    assert text.startswith("Persuasion\n\n\nby\n\nJane Austen")


def test_windows_share_their_border_token_and_nothing_is_lost_between(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = make_recipe(
        vocab_size=100, train=(numbered(tmp_path / "c", 100),), shuffle=False, validation_fraction=0, seq_length=10
    )
    train = open_corpora(recipe, cache=tmp_path).train
    # (100 - 1) // 10 = 9 windows of 11: 0..10, 10..20, ...
    assert train.batch(range(9)).tolist() == [list(range(10 * i, 10 * i + 11)) for i in range(9)]


@pytest.mark.parametrize("packing", ["concatenate", "whole_documents"])
def test_what_is_held_out_is_never_trained_on(make_recipe: Callable[..., Recipe], tmp_path: Path, packing: str) -> None:
    with IndexedWriter(tmp_path / "c", vocab_size=200_000) as writer:
        for first in range(0, 5000, 10):  # 500 documents of 10 tokens, all tokens different
            writer.add_tokens(np.arange(first, first + 9))
            writer.end_document(np.array([first + 9]))
    recipe = make_recipe(
        vocab_size=5000, train=(str(tmp_path / "c"),), validation_fraction=0.3, packing=packing, seq_length=32
    )
    corpora = open_corpora(recipe, cache=tmp_path)
    assert corpora.validation is not None
    trained, held_out = (set(s.batch(range(len(s))).ravel()) - {0} for s in (corpora.train, corpora.validation))
    assert not trained & held_out
    assert max(trained) < 3500 <= min(held_out)  # 70 % of 5,000


def test_named_validation_sets_are_read_whole_and_each_alone(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    names = [numbered(tmp_path / name, 101) for name in ("train", "one", "two")]
    recipe = make_recipe(vocab_size=101, seq_length=10, train=tuple(names[:1]), validation=tuple(names[1:]))
    corpora = open_corpora(recipe, cache=tmp_path)
    assert corpora.validation is not None
    assert (len(corpora.train), len(corpora.validation)) == (10, 20)
    assert {name: len(s) for name, s in corpora.validation_sets.items()} == {names[1]: 10, names[2]: 10}


def test_nothing_is_held_out_when_nothing_is_asked(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = make_recipe(vocab_size=100, train=(numbered(tmp_path / "c", 100),), validation_fraction=0)
    assert open_corpora(recipe, cache=tmp_path).validation is None


@given(
    lengths=st.lists(st.integers(20, 300), min_size=1, max_size=3),
    weighted=st.booleans(),
    seed=st.integers(0, 1000),
    first=st.integers(0, 5000),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_ordinal_is_the_same_alone_in_a_batch_and_after_reopening(
    make_recipe: Callable[..., Recipe], tmp_path: Path, lengths: list[int], weighted: bool, seed: int, first: int
) -> None:
    names = tuple(numbered(tmp_path / f"{i}", length) for i, length in enumerate(lengths))
    recipe = make_recipe(
        vocab_size=300,
        seq_length=7,
        seed=seed,
        train=names,
        train_weights=tuple(float(i + 1) for i in range(len(names))) if weighted else (),
        evaluation_batches=0,
    )
    ordinals = list(range(first, first + 20))
    together = open_corpora(recipe, cache=tmp_path).train.batch(ordinals)
    alone = open_corpora(recipe, cache=tmp_path).train
    assert np.array_equal(together, np.concatenate([alone.batch([ordinal]) for ordinal in ordinals]))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_step_sees_the_same_sequences_on_any_number_of_ranks(
    make_recipe: Callable[..., Recipe], tmp_path: Path, ranks: int
) -> None:
    recipe = make_recipe(vocab_size=1000, train=(numbered(tmp_path / "c", 1000),))
    step = 7
    whole = open_corpora(recipe, cache=tmp_path).train.batch(range(step * 8, step * 8 + 8))
    seen = [
        open_corpora(recipe, cache=tmp_path).train.batch(ordinals)
        for rank in range(ranks)
        for ordinals in micro_batches(
            step, global_batch_size=8, micro_batch_size=2, data_rank=rank, data_parallel_size=ranks
        )
    ]
    assert np.array_equal(np.concatenate(seen), whole)


@given(stops=st.lists(st.tuples(st.integers(1, 15), st.sampled_from([1, 2, 4])), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_killed_at_any_step_and_resumed_on_other_ranks_each_sequence_comes_once_an_epoch(
    make_recipe: Callable[..., Recipe], tmp_path: Path, stops: list[tuple[int, int]]
) -> None:
    # (1,000 - 1) // 10 = 99 windows less those held out: floor(0.03 x 1,000) = 30 tokens, (970 - 1) // 10 = 96 windows.
    recipe = make_recipe(
        vocab_size=1000, seq_length=10, train=(numbered(tmp_path / "c", 1000),), validation_fraction=0.03
    )
    ledger: list[int] = []
    done = 0
    for steps, ranks in [*stops, (100, 2)]:
        train = open_corpora(recipe, cache=tmp_path).train
        for step in range(done, min(done + steps, 24)):
            for rank in range(ranks):
                for ordinals in micro_batches(
                    step, global_batch_size=8, micro_batch_size=1, data_rank=rank, data_parallel_size=ranks
                ):
                    ledger += train.ids(ordinals).tolist()
        done = step + 1
    epochs = [ledger[:96], ledger[96:]]  # 24 steps of 8 are two epochs of 96
    assert len(ledger) == 192
    assert all(sorted(epoch) == list(range(96)) for epoch in epochs)
    assert ledger == train.ids(range(192)).tolist()


def test_weights_decide_how_often_a_corpus_is_read(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    names = tuple(numbered(tmp_path / name, tokens) for name, tokens in (("large", 10_000), ("small", 500)))
    recipe = make_recipe(vocab_size=10_000, seq_length=10, train=names, train_weights=(1.0, 3.0))
    train = open_corpora(recipe, cache=tmp_path).train
    large = len(train.corpora[0][0].windows)
    assert (train.ids(range(400)) >= large).sum() == 300
    by_size = open_corpora(make_recipe(vocab_size=10_000, seq_length=10, train=names), cache=tmp_path).train
    assert sorted(by_size.ids(range(len(by_size)))) == list(range(len(by_size)))


def test_a_small_corpus_of_a_blend_is_seen_whole_before_any_of_it_again(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    names = tuple(numbered(tmp_path / name, tokens) for name, tokens in (("large", 10_000), ("small", 500)))
    recipe = make_recipe(vocab_size=10_000, seq_length=10, train=names, train_weights=(1.0, 3.0), validation_fraction=0)
    train = open_corpora(recipe, cache=tmp_path).train
    large = len(train.corpora[0][0].windows)
    small = [i for i in train.ids(range(400)).tolist() if i >= large]
    assert sorted(small[:49]) == list(range(large, large + 49))  # (500 - 1) // 10 = 49 windows


def test_a_pattern_of_texts_is_one_corpus_and_of_shards_one_too(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name * 40)
        prepare([tmp_path / f"{name}.txt"], tmp_path / f"{name}-shard")
    for pattern, shards in (("*.txt", 1), ("*.bin", 2), ("*-shard.idx", 2), ("*-shard*", 2)):
        recipe = make_recipe(train=(str(tmp_path / pattern),), validation_fraction=0, seq_length=20, shuffle=False)
        train = open_corpora(recipe, cache=tmp_path / "cache").train
        assert len(train.corpora[0]) == shards
        # Together 82 tokens: (82 - 1) // 20 = 4 windows; apart 41 each: 2 + 2.
        assert len(train) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": ("{0}/none.txt",)}, r"there is no file .*none\.txt"),
        ({"train": ("{0}/*.none",)}, r"nothing matches .*\*\.none"),
        ({"train": ("{0}/none",)}, r"none is none of the formats read here"),
        (
            {"train": ("{0}/c",), "seq_length": 1000},
            r"the 95 tokens of .*c to train on are less than one sequence of 1,000",
        ),
        (
            {"train": ("{0}/c",), "seq_length": 50},
            r"the 5 tokens held out for evaluation are less than one sequence of 50",
        ),
        (
            {"train": ("demo",), "validation": ("{0}/c",), "seq_length": 100},
            r"the 100 tokens of .*c are less than one",
        ),
        ({"train": ("{0}/c",), "train_weights": (1.0, 2.0)}, "2 weights, the smallest 1, for 1 training corpora"),
        ({"train": ("{0}/c",), "train_weights": (0.0,)}, "1 weights, the smallest 0, for 1 training corpora"),
        ({"vocab_size": 256}, "tokenizer bytes has 257 tokens, the model 256 embedding rows"),
        (
            {"tokenizer": "bpe", "train": ("{0}/c",), "validation": ("demo",)},
            "a bpe is trained on the training text, and there is none",
        ),
        ({"tokenizer": "{0}/no-folder"}, "there is no tokenizer folder .*no-folder"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(
    make_recipe: Callable[..., Recipe], tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    numbered(tmp_path / "c", 100)
    text = json.dumps(changes).replace("{0}", str(tmp_path))
    changes = {key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(text).items()}
    with pytest.raises(DataError, match=message) as caught:
        open_corpora(make_recipe(**changes), cache=tmp_path / "cache")
    assert caught.value.faults[0].keys


def test_a_held_out_part_that_is_too_short_does_not_matter_when_nothing_is_evaluated(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = make_recipe(vocab_size=100, train=(numbered(tmp_path / "c", 100),), seq_length=50, evaluation_batches=0)
    assert open_corpora(recipe, cache=tmp_path).validation is None


def test_a_token_beyond_the_model_is_refused_before_it_reaches_it(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train = open_corpora(make_recipe(vocab_size=50, train=(numbered(tmp_path / "c", 1000),)), cache=tmp_path).train
    with pytest.raises(DataError, match=r"c holds token \d+, the model has 50 embedding rows"):
        train.batch(range(len(train)))


def test_corpora_of_two_tokenizers_are_not_mixed(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text " * 50)
    prepare([tmp_path / "a.txt"], tmp_path / "shards", "bpe", vocab_size=300)
    recipe = make_recipe(vocab_size=300, train=("demo", str(tmp_path / "shards")))
    with pytest.raises(DataError, match=r"tokenized differently: demo \(bytes\), .*shards \(bpe\)"):
        open_corpora(recipe, cache=tmp_path / "cache")


def test_the_digest_changes_with_content_and_order_but_not_with_the_place(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    def digest(**changes: object) -> str:
        return open_corpora(make_recipe(**changes), cache=tmp_path / "cache").digest

    (tmp_path / "a.txt").write_text("some text " * 50)
    (tmp_path / "moved.txt").write_text("some text " * 50)
    here = digest(train=(str(tmp_path / "a.txt"),))
    assert digest(train=(str(tmp_path / "moved.txt"),)) == here
    others = [
        digest(),
        digest(train=(str(tmp_path / "a.txt"),), seed=2),
        digest(train=(str(tmp_path / "a.txt"),), shuffle=False),
        digest(train=(str(tmp_path / "a.txt"),), seq_length=8),
        digest(train=(str(tmp_path / "a.txt"),), validation_fraction=0.1),
    ]
    assert len({here, *others}) == 6
