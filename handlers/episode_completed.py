"""episode.completed -> regret.computed, once the round is decided."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.rounds import round_is_decided
from schemas.events import EpisodeCompleted, RegretComputed
from schemas.words import Arm, Fault, Origin, VoidReason
from spade_daemon.log.state import Environment, Round
from spade_daemon.log.stored import Stored
from spade_daemon.method.regret import Play, Regret, paired_regret
from spade_daemon.method.rewards import designer_reward, reward_components
from spade_daemon.services import Services
from spade_daemon.settings import DesignerSettings


async def handle(stored: Stored[EpisodeCompleted], services: Services) -> None:
    """Compute the regret of the episode's round if this episode decided it."""
    data = stored.event.data
    environment = services.state.environments[data.environment]
    round_ = environment.rounds[data.round]
    if round_.regret is None and round_is_decided(round_):
        await services.log.append(regret_of(environment, round_, services.settings.designer), cause=stored)


def regret_of(environment: Environment, round_: Round, settings: DesignerSettings) -> RegretComputed:
    """The figures of a decided round."""
    regret = _regret(round_)
    components = reward_components(regret)
    awaited = environment.origin is Origin.DESIGNED and round_.plan.round == 0
    return RegretComputed(
        environment=environment.id,
        round=round_.plan.round,
        turn=round_.turn,
        void=regret.void,
        regret=regret.regret,
        regret_se=regret.standard_error,
        pairs=regret.pairs,
        plain_mean=regret.plain_mean,
        hinted_mean=regret.hinted_mean,
        win_rate=regret.win_rate,
        components=components.as_dict() if components else {},
        designer_reward=designer_reward(settings.reward, regret, settings.invalid_reward) if awaited else None,
        agent_signal=regret.agent_signal,
    )


def _regret(round_: Round) -> Regret:
    if any(episode.fault is Fault.ENVIRONMENT for episode in round_.episodes.values()):
        return Regret(VoidReason.ENVIRONMENT_FAULT, None, None, 0, None, None, None, agent_signal=False)
    arms = {
        arm: [
            Play(seed, episode.return_, episode.fault)
            for each, index, seed in round_.plan.episodes()
            if each is arm
            for episode in [round_.episodes[arm.value, index]]
        ]
        for arm in Arm
    }
    return paired_regret(arms[Arm.PLAIN], arms[Arm.HINTED])


REACTION = Reaction(EpisodeCompleted, handle)
