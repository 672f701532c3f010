"""document.sampled -> environment.proposed: the designer answers the document, once."""

from __future__ import annotations

import random

from handlers.reaction import Reaction
from schemas.events import DocumentSampled, EnvironmentProposed
from spade_daemon.log.stored import Stored
from spade_daemon.memory.retrieval import choose_references
from spade_daemon.method.curriculum import environment_id
from spade_daemon.method.outlines import draw_outline
from spade_daemon.method.prompts import Reference
from spade_daemon.roles.designer import Brief, design, store_design
from spade_daemon.services import Services


async def handle(stored: Stored[DocumentSampled], services: Services) -> None:
    """Ask the designer; record what it wrote, be it an environment or a failure."""
    data, settings = stored.event.data, services.settings
    identity = environment_id(services.log.run, data.turn.slot, data.turn.generation)
    if identity in services.state.environments:
        return
    references = await _references(data, services)
    brief = Brief(
        environment=identity,
        setting=data.setting,
        skill=data.skill,
        title=data.title,
        text=(await services.log.blobs.get(data.text)).decode(),
        references=tuple(reference for _, reference in references),
        outline=draw_outline(data.setting, data.skill, _generator(data, services)),
    )
    made = await design(
        brief,
        policy=services.policy,
        chat=services.chat,
        settings=settings.designer,
        max_bytes=settings.vet.max_code_bytes,
    )
    code = await services.log.blobs.put(made.parsed.code.encode()) if made.parsed.code is not None else None
    await services.log.append(
        EnvironmentProposed(
            environment=identity,
            turn=data.turn,
            document=data.document,
            setting=data.setting,
            skill=data.skill,
            failure=made.parsed.failure,
            code=code,
            sample=await store_design(services.log.blobs, made),
            references=tuple(identity for identity, _ in references),
        ),
        cause=stored,
    )


async def _references(data: DocumentSampled, services: Services) -> list[tuple[str, Reference]]:
    """Remembered environments for the prompt, chosen by a generator that the slot's turn seeds."""
    settings = services.settings
    entries = await services.memory.all()
    return choose_references(
        entries,
        setting=data.setting,
        skill=data.skill,
        positives=settings.designer.positives,
        negatives=settings.designer.negatives,
        rng=_generator(data, services),
    )


def _generator(data: DocumentSampled, services: Services) -> random.Random:
    """The same draws each time this turn is handled, so that a design begun twice is asked for in the same words."""
    return random.Random(f"{services.settings.curriculum.seed}.{data.turn.token()}")


REACTION = Reaction(DocumentSampled, handle, concurrent=True)
