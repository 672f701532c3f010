"""Bookkeeping of a conversation in tokens: what was sampled is what is trained, and nothing is ever encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.records import TokenSample, VersionSpan
from schemas.words import FinishReason
from spade_daemon.policy.chat import ChatTokens, Message, Tools


@dataclass(frozen=True)
class Completion:
    """One reply of a policy server.

    ``ids`` are the sampled tokens with the token that ended the turn, if it came to that; ``logprobs`` has one
    log-probability each, at ``temperature``. ``spans`` cover ``ids`` without a gap: which policy version sampled what.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: FinishReason
    spans: tuple[VersionSpan, ...]
    temperature: float
    server: str


@dataclass
class _Draft:
    """A sample that still grows."""

    ids: list[int]
    trained: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.extend_untrained(())

    def extend_untrained(self, ids: Sequence[int]) -> None:
        self.ids.extend(ids)
        missing = len(self.ids) - len(self.trained)
        self.trained.extend([False] * missing)
        self.logprobs.extend([0.0] * missing)

    def extend_sampled(self, completion: Completion) -> None:
        self.ids.extend(completion.ids)
        self.trained.extend([True] * len(completion.ids))
        self.logprobs.extend(completion.logprobs)
        self.versions.extend(span.version for span in completion.spans)

    def finish(self, temperature: float) -> TokenSample | None:
        """The sample up to its last trained token, or ``None`` where nothing was sampled."""
        if not any(self.trained) or not self.versions:
            return None
        end = len(self.trained) - self.trained[::-1].index(True)
        return TokenSample(
            ids=tuple(self.ids[:end]),
            trained=tuple(self.trained[:end]),
            logprobs=tuple(self.logprobs[:end]),
            version_min=min(self.versions),
            version_max=max(self.versions),
            temperature=temperature,
        )


class Conversation:
    """A dialogue in which the policy writes the assistant's part.

    Alternate :meth:`add_reply` with :meth:`add_user`, :meth:`add_tool` or :meth:`extend`. New turns are appended as
    the tokens that the chat template would add; where the template rewrites what came before (some drop earlier
    reasoning), the history is rendered anew and a new sample begins. Thus each sample is exactly what the sampler saw.
    """

    def __init__(self, chat: ChatTokens, messages: Sequence[Message], tools: Tools = ()) -> None:
        self._chat = chat
        self._tools = tools
        self._messages = list(messages)
        self._draft = _Draft(list(chat.render(messages, tools)))
        self._closed: list[TokenSample] = []
        self._temperature: float | None = None
        self._awaits_reply = True
        self._ended = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """The dialogue in words, replies included."""
        return tuple(self._messages)

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """What the next reply is sampled after."""
        return tuple(self._draft.ids)

    def __len__(self) -> int:
        """Tokens so far in the current context."""
        return len(self._draft.ids)

    def add_reply(self, completion: Completion) -> str:
        """Take a reply verbatim and return its text.

        Raises:
            ValueError: no reply was due, or its temperature differs from that of the earlier ones.
        """
        if not self._awaits_reply:
            raise ValueError("a reply follows a reply: add a user or tool turn between them")
        if self._temperature not in (None, completion.temperature):
            raise ValueError(f"temperature {completion.temperature} after {self._temperature} in one conversation")
        self._temperature = completion.temperature
        self._draft.extend_sampled(completion)
        text = self._chat.decode(completion.ids)
        self._messages.append(Message("assistant", text))
        self._ended = bool(completion.ids) and completion.ids[-1] == self._chat.end
        self._awaits_reply = False
        return text

    def add_user(self, text: str) -> None:
        """Append a user's turn."""
        self.extend([Message("user", text)])

    def add_tool(self, text: str) -> None:
        """Append the answer of one tool."""
        self.extend([Message("tool", text)])

    def extend(self, turns: Sequence[Message]) -> None:
        """Append all turns that stand before the next reply; several answers of tools go in one call.

        Raises:
            ValueError: no turn is due.
        """
        if self._awaits_reply or not turns:
            raise ValueError("turns are added after a reply, all at once")
        delta = self._delta(turns)
        self._messages.extend(turns)
        if delta is None:
            self._close()
            self._draft = _Draft(list(self._chat.render(self._messages, self._tools)))
        else:
            self._draft.extend_untrained(delta)
        self._awaits_reply = True

    def samples(self) -> tuple[TokenSample, ...]:
        """All samples so far; those without a sampled token are left out."""
        last = self._draft.finish(self._temperature) if self._temperature else None
        return (*self._closed, *([last] if last else []))

    def _close(self) -> None:
        sample = self._draft.finish(self._temperature) if self._temperature else None
        if sample is not None:
            self._closed.append(sample)

    def _delta(self, turns: Sequence[Message]) -> tuple[int, ...] | None:
        """Tokens from the end of the last reply to the next one's begin; ``None`` if the history would change."""
        text, tools = self._chat.text, self._tools
        asked = text(self._messages[:-1], tools, prompt=True)
        reply = self._chat.neutral(self._messages[-1].content)
        answered = text(self._messages, tools, prompt=False)
        continued = text([*self._messages, *turns], tools, prompt=True)
        if not answered.startswith(asked + reply) or not continued.startswith(asked + reply):
            return None
        delta = self._chat.encode(continued[len(asked) + len(reply) :])
        if not delta or delta[0] != self._chat.end:
            return None
        return delta[1:] if self._ended else delta


__all__ = ["Completion", "Conversation"]
