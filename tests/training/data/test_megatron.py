"""Against Megatron-Core's own reader and builder, where it is installed (``pip install --no-deps megatron-core``)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from launcher.training.data.demo import DEMO_TEXT
from launcher.training.data.indexed import IndexedWriter, open_indexed
from launcher.training.data.prepare import prepare

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def megatron() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Megatron's imports: optional kernels, deprecated torch.jit
        return pytest.importorskip("megatron.core.datasets.indexed_dataset", reason="megatron-core is not installed")


def test_megatron_reads_our_demo_corpus_token_for_token(megatron: Any, tmp_path: Path) -> None:
    prepared = prepare([DEMO_TEXT], tmp_path / "demo", "bpe", vocab_size=1024)
    theirs = megatron.IndexedDataset(str(prepared.prefix))
    ours = open_indexed(prepared.prefix)
    assert len(theirs) == 1
    assert np.array_equal(theirs[0], ours.tokens)
    assert len(theirs[0]) == prepared.tokens


@pytest.mark.parametrize("vocab_size", [300, 70_000])
def test_megatron_reads_each_of_our_documents(megatron: Any, tmp_path: Path, vocab_size: int) -> None:
    generator = np.random.default_rng(0)
    documents = [generator.integers(0, vocab_size, length) for length in (1, 5, 1000, 3)]
    with IndexedWriter(tmp_path / "c", vocab_size=vocab_size) as writer:
        for document in documents:
            writer.add_tokens(document)
            writer.end_document(np.array([7]))
    theirs = megatron.IndexedDataset(str(tmp_path / "c"))
    assert theirs.document_indices.tolist() == [0, 1, 2, 3, 4]
    assert [theirs[i].tolist() for i in range(4)] == [[*document.tolist(), 7] for document in documents]


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_we_read_what_megatron_builds(megatron: Any, tmp_path: Path, dtype: type) -> None:
    builder = megatron.IndexedDatasetBuilder(str(tmp_path / "m.bin"), dtype=dtype)
    builder.add_document(np.array([1, 2, 3]), [2, 1])  # a document of two sentences
    builder.add_document(np.array([4]), [1])
    builder.finalize(str(tmp_path / "m.idx"))
    corpus = open_indexed(tmp_path / "m")
    assert corpus.tokens.dtype == dtype
    assert [corpus.document(d).tolist() for d in range(corpus.document_count)] == [[1, 2, 3], [4]]
