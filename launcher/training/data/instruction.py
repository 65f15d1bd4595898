"""Instruction data: JSON lines of conversations, of which only the replies are learnt.

* ``{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}``: laid out by the
  tokenizer's chat template; what the assistant says is learnt;
* ``{"prompt": "...", "completion": "..."}``: one after the other as they are; the completion is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from launcher.training.data.chat_template import ChatTemplate
from launcher.training.data.documents import mend, read_records
from launcher.training.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from launcher.training.data.tokenizer import Tokenizer

FORMATS = (".jsonl", ".json")
"""Suffixes of files that hold conversations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A conversation as the model reads it, and what of it is learnt."""

    text: str
    replies: tuple[tuple[int, int], ...]
    """First and one past the last character of each reply."""
    special: bool
    """Whether special tokens in ``text`` are meant as such: a chat template writes them."""


def read_examples(path: Path, tokenizer: Tokenizer) -> Iterator[Example]:
    """The conversations of ``path``, in order.

    Raises:
        DataError: a line is neither form, holds no reply, or needs a chat template that the tokenizer lacks.
    """
    template: ChatTemplate | None = None
    for where, record in read_records(path):
        prompt, completion = record.get("prompt"), record.get("completion")
        if isinstance(prompt, str) and isinstance(completion, str):
            yield _completion(mend(prompt), mend(completion))
        elif isinstance(record.get("messages"), list):
            template = template or ChatTemplate(tokenizer)
            yield _conversation(record["messages"], template, where=where)
        else:
            raise DataError(
                f"{where} is no instruction: it has {', '.join(record) or 'no fields'}",
                keys=("data.format",),
                code="data.no_instruction",
                allowed="messages (a list), or prompt and completion (strings)",
            )


def encode_example(example: Example, tokenizer: Tokenizer) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """The tokens of ``example``, and which of them are learnt: those with a character of a reply.

    An end-of-document token that the template wrote at the end is left to the writer, which adds its own.
    """
    located = tokenizer.encode_located(example.text, special=example.special)
    is_target = np.zeros(len(located.tokens), np.bool_)
    for start, stop in example.replies:
        is_target |= (located.ends > start) & (located.starts < stop)
    if len(located.tokens) and located.tokens[-1] == tokenizer.end_of_document:
        return located.tokens[:-1], is_target[:-1]
    return located.tokens, is_target


def _completion(prompt: str, completion: str) -> Example:
    text = prompt + completion
    return Example(text=text, replies=((len(prompt), len(text)),), special=False)


def _conversation(messages: list[dict[str, Any]], template: ChatTemplate, *, where: str) -> Example:
    text = mend(template.lay_out(messages, where=where))
    said = [number for number, message in enumerate(messages) if message.get("role") == "assistant"]
    if not said or said[0] == 0:
        raise DataError(f"{where} holds no message that the assistant replies to", code="data.no_reply")
    replies = tuple(_reply(messages, number, template, text, where=where) for number in said)
    return Example(text=text, replies=replies, special=True)


def _reply(
    messages: list[dict[str, Any]], number: int, template: ChatTemplate, text: str, *, where: str
) -> tuple[int, int]:
    """A reply begins where the template awaits it and ends where the template has laid it out."""
    before = mend(template.lay_out(messages[:number], where=where, awaits_reply=True))
    after = mend(template.lay_out(messages[: number + 1], where=where))
    if not (after.startswith(before) and text.startswith(after)):
        what = f"{where}: the chat template rewrites earlier messages, so that replies cannot be told apart"
        raise DataError(what, code="data.chat_template", suggestion="one reply a line, or prompt and completion")
    return len(before), len(after)
