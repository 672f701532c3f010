"""The designer's role: from a document and remembered environments to one reply, and from code to a hint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.records import DesignRecord, SampleRef, TokenSample
from schemas.words import FinishReason, Setting
from spade_daemon.envs.contract import contract
from spade_daemon.log.blobs import Blobs
from spade_daemon.method.parsing import Parsed, hint_text, parse_design
from spade_daemon.method.prompts import Messages, Reference, designer_messages, hint_messages
from spade_daemon.policy.chat import ChatTokens, Message
from spade_daemon.policy.client import Policy
from spade_daemon.policy.tokens import Conversation
from spade_daemon.settings import DesignerSettings, HintSettings

ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
}


@dataclass(frozen=True, slots=True)
class Brief:
    """What the designer is asked for."""

    environment: str
    setting: Setting
    skill: str
    title: str
    text: str
    references: tuple[Reference, ...]
    outline: str | None = None
    """Mechanics to carry out, for the ``outline`` prompt."""


@dataclass(frozen=True, slots=True)
class Design:
    """The designer's reply: its record for the log, and what was found in it."""

    record: DesignRecord
    parsed: Parsed
    prompt_tokens: int


async def design(
    brief: Brief, *, policy: Policy, chat: ChatTokens, settings: DesignerSettings, max_bytes: int
) -> Design:
    """Ask once for an environment. One document, one attempt, one sample (method 2).

    Raises:
        EpisodeFault: no policy server answered in time.
    """
    messages = designer_messages(
        size=settings.prompt,
        setting=brief.setting,
        contract=contract(brief.setting),
        skill=brief.skill,
        title=brief.title,
        text=brief.text,
        references=brief.references,
        outline=brief.outline,
    )
    response, conversation, finish = await _ask(messages, policy, chat, settings.max_tokens, settings.temperature)
    prompt_tokens = len(conversation) - sum(sum(sample.trained) for sample in conversation.samples())
    samples = conversation.samples()
    record = DesignRecord(
        environment=brief.environment,
        prompt=messages,
        response=response,
        sample=samples[0] if samples else None,
    )
    parsed = parse_design(response, cut=finish is FinishReason.LENGTH, max_bytes=max_bytes)
    return Design(record, parsed, prompt_tokens)


async def write_hint(code: str, setting: Setting, *, policy: Policy, chat: ChatTokens, settings: HintSettings) -> str:
    """Ask the policy, in a call of its own that reads the code, for a hint. May be empty; may leak: check it."""
    messages = hint_messages(setting=setting, code=code, max_words=settings.max_words)
    response, _, _ = await _ask(messages, policy, chat, settings.max_tokens, max(settings.temperature, 1e-3))
    return hint_text(response)


async def _ask(
    messages: Messages, policy: Policy, chat: ChatTokens, max_tokens: int, temperature: float
) -> tuple[str, Conversation, FinishReason]:
    conversation = Conversation(chat, as_chat(messages))
    completion = await policy.generate(conversation.prompt_ids, max_tokens=max_tokens, temperature=temperature)
    return conversation.add_reply(completion), conversation, completion.finish


def as_chat(messages: Messages) -> tuple[Message, ...]:
    """Messages of the method as the chat template takes them."""
    return tuple(Message(ROLES[role], content) for role, content in messages)


async def store_design(blobs: Blobs, made: Design) -> SampleRef:
    """Write the design's record as a blob and summarise it for the event."""
    name = await blobs.put_record(made.record)
    return summarise(name, [made.record.sample] if made.record.sample else [], made.prompt_tokens)


def summarise(blob: str, samples: Sequence[TokenSample], prompt_tokens: int) -> SampleRef:
    """What a batch planner needs to know of a blob that holds ``samples``."""
    return SampleRef(
        blob=blob,
        prompt_tokens=prompt_tokens,
        sampled_tokens=sum(sum(sample.trained) for sample in samples),
        version_min=min((sample.version_min for sample in samples), default=0),
        version_max=max((sample.version_max for sample in samples), default=0),
        temperature=samples[0].temperature if samples else 1.0,
    )
