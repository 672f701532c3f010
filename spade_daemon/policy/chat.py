"""Messages to token ids: the model's chat template, with text that cannot forge a turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import JsonValue

from spade_daemon.errors import ConfigError

Tools = Sequence[dict[str, JsonValue]]
"""JSON schemas of functions, in OpenAI's form."""
ZERO_WIDTH = "\u200b"


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class ChatTokens:
    """Renders conversations with a Hugging Face tokenizer and its chat template.

    Message text is not trusted: where it spells one of the model's special tokens (the end of a turn, say), an
    invisible character breaks the spelling, so that an environment or a document cannot end its own turn.
    """

    def __init__(self, tokenizer: Any, stop_ids: Sequence[int] = ()) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("the model's tokenizer has no chat template: choose an instruct model")
        self._tokenizer = tokenizer
        self._special = sorted(_special_tokens(tokenizer), key=len, reverse=True)
        self.end = _turn_end(self)
        """Id of the token that ends a turn."""
        self.stop_ids: tuple[int, ...] = tuple(sorted({self.end, int(tokenizer.eos_token_id), *stop_ids}))
        """Ids at which the sampler stops; the sampled one is part of the reply."""

    @classmethod
    def load(cls, model: Path) -> Self:
        """From a model directory, with the stop tokens that its generation configuration names."""
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(model, local_files_only=True), _configured_stops(model))

    def render(self, messages: Sequence[Message], tools: Tools = ()) -> tuple[int, ...]:
        """Token ids of the prompt that asks for the next assistant message."""
        return self.encode(self.text(messages, tools, prompt=True))

    def text(self, messages: Sequence[Message], tools: Tools = (), *, prompt: bool) -> str:
        """The conversation as the template writes it; with ``prompt``, open for the assistant's reply."""
        rendered = self._tokenizer.apply_chat_template(
            [{"role": message.role, "content": self.neutral(message.content)} for message in messages],
            tools=[self._neutral_json(tool) for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=prompt,
        )
        return str(rendered)

    def neutral(self, text: str) -> str:
        """``text`` with the spelling of special tokens broken up; all other text comes back as it is."""
        for token in self._special:
            text = text.replace(token, token[0] + ZERO_WIDTH + token[1:])
        return text

    def encode(self, rendered: str) -> tuple[int, ...]:
        """Ids of rendered text; special tokens in it count."""
        return tuple(self._tokenizer.encode(rendered, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a reply, without the token that ended it. Ids that are no UTF-8 become replacement signs."""
        body = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        return str(self._tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _neutral_json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.neutral(value)
        if isinstance(value, dict):
            return {self.neutral(str(key)): self._neutral_json(item) for key, item in value.items()}
        return [self._neutral_json(item) for item in value] if isinstance(value, list) else value


def _special_tokens(tokenizer: Any) -> set[str]:
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return added | {str(token) for token in tokenizer.all_special_tokens}


def _configured_stops(model: Path) -> tuple[int, ...]:
    try:
        eos = json.loads((model / "generation_config.json").read_text(encoding="utf-8")).get("eos_token_id")
    except (OSError, ValueError):
        return ()
    return tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),)


def _turn_end(chat: ChatTokens) -> int:
    """Find the token that the template writes directly after an assistant's message."""
    mark = "reply"
    rendered = chat.text([Message("user", "question"), Message("assistant", mark)], prompt=False)
    after = chat.encode(rendered[rendered.rindex(mark) + len(mark) :].lstrip())
    if not after:
        raise ConfigError("the chat template does not close an assistant's turn: choose another model")
    return after[0]


__all__ = ["ChatTokens", "Message", "Tools"]
