"""``launcher data``: text becomes tokenized shards in Megatron's indexed format, and can be looked into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.data_upload import upload
from launcher.cli.invocation import Invocation, Verb, VerbGroup
from launcher.units import format_bytes, format_count

if TYPE_CHECKING:
    from launcher.training.data.indexed import Indexed
    from launcher.training.data.prepare import Format, Prepared, Progress


@click.group(cls=VerbGroup)
def command() -> None:
    """Tokenize text into training shards, and look into them."""


@command.command(cls=Verb)
@click.argument("inputs", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="Prefix of the shards: PREFIX.bin, PREFIX.idx."
)
@click.option("--tokenizer", default="bytes", show_default=True, help="bytes, bpe (trained here), or a folder.")
@click.option("--vocab-size", type=click.IntRange(min=1), help="Tokens of a bpe; the limit of any other tokenizer.")
@click.option("--text-key", default="text", show_default=True, help="Field of a JSON line, or column, with the text.")
@click.option(
    "--format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "instruction"]),
    help="What a JSON line holds: text; or messages (or prompt and completion), of which only replies are learnt.",
)
@click.pass_obj
def prepare(
    invocation: Invocation,
    inputs: tuple[Path, ...],
    output: Path,
    tokenizer: str,
    vocab_size: int | None,
    text_key: str,
    format: Format,
) -> None:
    """Tokenize .txt, .jsonl and .parquet files into one corpus.

    launcher data prepare books/*.txt --output corpora/books --tokenizer bpe --vocab-size 8192
    launcher data prepare chats.jsonl --output corpora/chats --tokenizer models/qwen --format instruction
    """
    from launcher.training.data.prepare import prepare

    def on_progress(progress: Progress) -> None:
        invocation.progress(
            f"{format_bytes(progress.text_bytes)} of {format_bytes(progress.input_bytes)}, "
            f"{progress.documents:,} documents, {format_count(progress.tokens)} tokens"
        )

    prepared = prepare(
        inputs, output, tokenizer, vocab_size=vocab_size, format=format, text_key=text_key, on_progress=on_progress
    )
    invocation.end_progress()
    invocation.answer(_prepared_document(prepared), lambda: "\n".join(_prepared_lines(prepared)))


@command.command(cls=Verb)
@click.argument("prefix", type=click.Path(path_type=Path))
@click.option("--document", default=0, show_default=True, type=click.IntRange(min=0), help="Which document to print.")
@click.option("--tokens", default=64, show_default=True, type=click.IntRange(min=1), help="Its first tokens printed.")
@click.pass_obj
def show(invocation: Invocation, prefix: Path, document: int, tokens: int) -> None:
    """Show what a corpus holds: sizes, tokenizer, sources, and the beginning of a document.

    launcher data show corpora/books --document 3
    """
    from launcher.training.data.indexed import open_indexed

    corpus = open_indexed(prefix)
    shown = _corpus_document(corpus, document=document, most=tokens)
    invocation.answer(shown, lambda: "\n".join(_corpus_lines(shown)))


command.add_command(upload)


def _prepared_document(prepared: Prepared) -> dict[str, Any]:
    return {
        "prefix": str(prepared.prefix),
        "documents": prepared.documents,
        "tokens": prepared.tokens,
        "bytes": prepared.bytes,
        "tokenizer": prepared.tokenizer,
        "vocab_size": prepared.vocab_size,
    }


def _prepared_lines(prepared: Prepared) -> list[str]:
    return [
        f"prepared   {prepared.prefix}.bin, {prepared.prefix}.idx ({format_bytes(prepared.bytes)})",
        f"holds      {prepared.documents:,} documents, {prepared.tokens:,} tokens",
        f"tokenizer  {prepared.tokenizer}, {prepared.vocab_size:,} tokens",
        f"next       launcher data show {prepared.prefix}    "
        f"launcher submit RECIPE 'data.train=[{prepared.prefix}]' model.vocab_size={prepared.vocab_size}",
    ]


def _corpus_document(corpus: Indexed, *, document: int, most: int) -> dict[str, Any]:
    from launcher.errors import UsageError

    if document >= corpus.document_count:
        raise UsageError(
            f"there is no document {document}", allowed=f"0 to {corpus.document_count - 1}", code="usage.document"
        )
    tokens = corpus.document(document)
    return {
        "prefix": str(corpus.prefix),
        "documents": corpus.document_count,
        "tokens": len(corpus.tokens),
        "bytes": corpus.tokens.nbytes,
        "dtype": str(corpus.tokens.dtype),
        "record": _record(corpus.prefix),
        "document": {
            "number": document,
            "tokens": len(tokens),
            "first_tokens": [int(token) for token in tokens[:most]],
            "text": _text(corpus.prefix, tokens[:most]),
        },
    }


def _record(prefix: Path) -> dict[str, Any] | None:
    """What the corpus was made from, if we made it."""
    from launcher.training.data.prepare import record_file

    path = record_file(prefix)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _text(prefix: Path, tokens: Any) -> str | None:
    """The text of ``tokens``, if the tokenizer lies beside the corpus."""
    from launcher.training.data.prepare import tokenizer_folder
    from launcher.training.data.tokenizer import load_tokenizer

    folder = tokenizer_folder(prefix)
    return load_tokenizer(folder).decode(tokens) if folder.is_dir() else None


def _corpus_lines(shown: dict[str, Any]) -> list[str]:
    record, document = shown["record"], shown["document"]
    lines = [
        f"corpus     {shown['prefix']} ({format_bytes(shown['bytes'])} of {shown['dtype']})",
        f"holds      {shown['documents']:,} documents, {shown['tokens']:,} tokens",
    ]
    if record:
        tokenizer = record["tokenizer"]
        lines.append(f"tokenizer  {tokenizer['name']}, {tokenizer['vocab_size']:,} tokens")
        sources = [f"{source['name']} ({format_bytes(source['bytes'])})" for source in record["sources"]]
        lines += terminal.labelled("made from", sources, size=11)
    text = document["text"]
    body = text.splitlines() if text is not None else [" ".join(map(str, document["first_tokens"]))]
    return [
        *lines,
        "",
        f"document {document['number']}: {document['tokens']:,} tokens",
        *("  " + line for line in body),
    ]
