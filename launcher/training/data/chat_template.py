"""The chat template of a Hugging Face tokenizer: messages to the text a model was taught to read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from launcher.training.data.errors import DataError
from launcher.training.data.tokenizer import LearnedTokenizer

if TYPE_CHECKING:
    from launcher.training.data.tokenizer import Tokenizer

_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTemplate:
    """Lays out messages as ``tokenizer``'s template says, through transformers.

    Raises:
        DataError: the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not isinstance(tokenizer, LearnedTokenizer) or not tokenizer.settings.get("chat_template"):
            raise DataError(
                f"tokenizer {tokenizer.name} has no chat template to lay out messages with",
                keys=("data.tokenizer", "data.format"),
                code="data.no_chat_template",
                allowed="a tokenizer folder with a chat_template, or JSON lines with prompt and completion",
            )
        self._tokenizer = tokenizer

    def lay_out(self, messages: list[dict[str, Any]], *, where: str, awaits_reply: bool = False) -> str:
        """The text of ``messages`` (found at ``where``); with ``awaits_reply``, up to where the assistant begins.

        Raises:
            DataError: the template refuses the messages (roles out of turn, say).
        """
        from jinja2 import TemplateError

        try:
            return str(self._door.apply_chat_template(messages, tokenize=False, add_generation_prompt=awaits_reply))
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            what = f"{where}: the chat template refuses the messages: {error}"
            raise DataError(what, code="data.chat_template") from error

    @cached_property
    def _door(self) -> Any:
        from transformers import PreTrainedTokenizerFast

        settings = self._tokenizer.settings
        named = {name: _content(settings[name]) for name in _SPECIAL_TOKENS if settings.get(name)}
        template = settings["chat_template"]
        return PreTrainedTokenizerFast(tokenizer_object=self._tokenizer.model, chat_template=template, **named)


def _content(token: str | dict[str, Any]) -> str:
    return str(token["content"]) if isinstance(token, dict) else token
