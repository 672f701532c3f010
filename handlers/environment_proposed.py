"""environment.proposed -> environment.validated: the gate, then the hint. An unparsable design is retired at once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from handlers.reaction import Reaction
from schemas.events import EnvironmentProposed, EnvironmentRetired, EnvironmentValidated
from schemas.records import Check, PlayPlan
from schemas.words import RetireReason
from spade_daemon.log.stored import Stored
from spade_daemon.memory.embedder import vector_bytes
from spade_daemon.method.curriculum import play_seeds
from spade_daemon.roles.designer import write_hint
from spade_daemon.services import Services
from spade_daemon.vetting.gate import Verdict, vet
from spade_daemon.vetting.hints import clean_hint, hint_leak


@dataclass(frozen=True, slots=True)
class _Novelty:
    """Where a design lies among the remembered ones."""

    check: Check
    embedding: str
    nearest: str | None
    similarity: float | None


async def handle(stored: Stored[EnvironmentProposed], services: Services) -> None:
    """Vet the design; what is accepted gets a hint and a plan for its first round."""
    data = stored.event.data
    if data.failure is not None or data.code is None:
        retired = EnvironmentRetired(
            environment=data.environment, round=0, turn=data.turn, reason=RetireReason.UNPARSABLE
        )
        await services.log.append(retired, cause=stored)
        return
    if services.state.environments[data.environment].accepted is not None:
        return
    code = (await services.log.blobs.get(data.code)).decode()
    verdict = await _vet(data, code, services)
    checks, novelty, hint = list(verdict.checks), None, None
    if verdict.accepted:
        novelty = await _novelty(verdict, code, services)
        checks.append(novelty.check)
    if verdict.accepted and novelty is not None and novelty.check.passed:
        hint, check = await _hint(data, code, verdict, services)
        checks.append(check)
    failed = next((check for check in checks if not check.passed), None)
    await services.log.append(
        EnvironmentValidated(
            environment=data.environment,
            turn=data.turn,
            accepted=failed is None,
            reason=failed.name if failed else None,
            checks=tuple(checks),
            description=verdict.description,
            hint=hint if failed is None else None,
            embedding=novelty.embedding if novelty else None,
            nearest=novelty.nearest if novelty else None,
            similarity=novelty.similarity if novelty else None,
            plan=_plan(data.environment, services) if failed is None else None,
            walls=services.sandbox.walls,
        ),
        cause=stored,
    )


def _plan(environment: str, services: Services) -> PlayPlan:
    return PlayPlan(round=0, seeds=play_seeds(environment, 0, services.settings.agent.plays))


async def _vet(data: EnvironmentProposed, code: str, services: Services) -> Verdict:
    known = {entry.id: entry.code for entry in await services.memory.all() if entry.setting == data.setting.value}
    return await vet(
        code,
        setting=data.setting,
        sandbox=services.sandbox,
        settings=services.settings.vet,
        seeds=play_seeds(data.environment, 1_000_000, services.settings.vet.seeds),
        known=known,
    )


async def _novelty(verdict: Verdict, code: str, services: Services) -> _Novelty:
    began = time.perf_counter()
    vector = (await services.embedder.embed([f"{verdict.description}\n\n{code}"]))[0]
    nearest = await services.memory.nearest(vector, k=1)
    entry, similarity = nearest[0] if nearest else (None, 0.0)
    limit = services.settings.memory.max_similarity
    passed = similarity <= limit
    check = Check(
        name="novel",
        passed=passed,
        detail=""
        if passed or entry is None
        else f"cosine {similarity:.3f} to {entry.id} is above {limit}: not a new idea",
        numbers={"similarity": similarity, "limit": limit},
        seconds=time.perf_counter() - began,
    )
    embedding = await services.log.blobs.put(vector_bytes(vector))
    return _Novelty(check, embedding, entry.id if entry else None, similarity if entry else None)


async def _hint(data: EnvironmentProposed, code: str, verdict: Verdict, services: Services) -> tuple[str | None, Check]:
    """Ask for a hint until one does not give the solution away, or the attempts are spent."""
    began, settings = time.perf_counter(), services.settings.hint
    leak: str | None = "no hint was written"
    for attempt in range(1, settings.attempts + 1):
        reply = await write_hint(code, data.setting, policy=services.policy, chat=services.chat, settings=settings)
        hint = clean_hint(reply, settings.max_words)
        leak = _leak(hint, verdict)
        if leak is None:
            numbers = {"attempts": float(attempt), "words": float(len(hint.split()))}
            return hint, Check(name="hint", passed=True, numbers=numbers, seconds=time.perf_counter() - began)
    detail = f"{settings.attempts} hints refused; the last: {leak}"
    return None, Check(name="hint", passed=False, detail=detail, seconds=time.perf_counter() - began)


def _leak(hint: str, verdict: Verdict) -> str | None:
    if not hint:
        return "the hint is empty"
    for actions, observation in zip(verdict.solution_actions, verdict.first_observations, strict=True):
        if leak := hint_leak(hint, actions, observation):
            return leak
    return None


REACTION = Reaction(EnvironmentProposed, handle, concurrent=True)
