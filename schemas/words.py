"""The closed vocabularies of the method: roles, arms, faults, reasons. Values are what the log stores."""

from __future__ import annotations

from enum import StrEnum


class Setting(StrEnum):
    """What kind of environment the designer writes (paper section 4)."""

    GAMES = "games"
    TOOL_USE = "tool_use"


class Role(StrEnum):
    """Which part the one model plays."""

    DESIGNER = "designer"
    AGENT = "agent"


class Arm(StrEnum):
    """Whether an episode was played with the privileged hint."""

    PLAIN = "plain"
    HINTED = "hinted"


class Fault(StrEnum):
    """Who owns a failure: it decides who is trained on it."""

    AGENT = "agent"
    ENVIRONMENT = "environment"
    INFRASTRUCTURE = "infrastructure"


class StopReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"
    """The environment said the episode is over; the last reward is the return."""
    TRUNCATED = "truncated"
    """The environment ran out of its own turns."""
    TURN_LIMIT = "turn_limit"
    """Our limit on turns."""
    TOKEN_BUDGET = "token_budget"
    """The trajectory's token budget is spent."""
    RESPONSE_CUT = "response_cut"
    """A reply reached its token limit; a cut reply is never executed."""
    ENVIRONMENT_CRASH = "environment_crash"
    """``reset`` or ``step`` raised, or the worker died."""
    ENVIRONMENT_HANG = "environment_hang"
    """``reset`` or ``step`` passed its wall or CPU limit while using the CPU."""
    ENVIRONMENT_INVALID = "environment_invalid"
    """A reply of the wrong shape, type or range."""
    STARVED = "starved"
    """The wall limit passed, but the worker got hardly any CPU: the host is overloaded."""
    POLICY_UNAVAILABLE = "policy_unavailable"
    """The policy server did not answer after retries."""
    DEADLINE = "deadline"
    """The outer deadline of the whole episode passed."""
    SANDBOX_LOST = "sandbox_lost"
    """The fork server died under the episode."""


FAULT_OF: dict[StopReason, Fault | None] = {
    StopReason.TERMINATED: None,
    StopReason.TRUNCATED: Fault.AGENT,
    StopReason.TURN_LIMIT: Fault.AGENT,
    StopReason.TOKEN_BUDGET: Fault.AGENT,
    StopReason.RESPONSE_CUT: Fault.AGENT,
    StopReason.ENVIRONMENT_CRASH: Fault.ENVIRONMENT,
    StopReason.ENVIRONMENT_HANG: Fault.ENVIRONMENT,
    StopReason.ENVIRONMENT_INVALID: Fault.ENVIRONMENT,
    StopReason.STARVED: Fault.INFRASTRUCTURE,
    StopReason.POLICY_UNAVAILABLE: Fault.INFRASTRUCTURE,
    StopReason.DEADLINE: Fault.INFRASTRUCTURE,
    StopReason.SANDBOX_LOST: Fault.INFRASTRUCTURE,
}
"""Owner of each way to stop; ``None`` where nothing failed."""


class Origin(StrEnum):
    """Where an environment comes from."""

    DESIGNED = "designed"
    SEED = "seed"


class DesignFailure(StrEnum):
    """Why a designer's reply holds no environment at all."""

    EMPTY = "empty"
    NO_CODE = "no_code"
    UNTERMINATED = "unterminated_fence"
    CUT = "cut_at_token_limit"
    TOO_LARGE = "too_large"


class GateCheck(StrEnum):
    """The checks of the gate, in order, from cheap to dear (method 3)."""

    SIZE = "size"
    LOADS = "loads"
    RUNS = "runs"
    SEEDED = "seeded"
    DETERMINISTIC = "deterministic"
    INTERACTIVE = "interactive"
    SOLVABLE = "solvable"
    NOT_TRIVIAL = "not_trivial"
    NOT_COPY = "not_copy"
    NOVEL = "novel"
    HINT = "hint"


class RetireReason(StrEnum):
    """Why an environment left play."""

    UNPARSABLE = "unparsable"
    REJECTED = "rejected"
    PLAYED = "played"
    VOID = "void"


class VoidReason(StrEnum):
    """Why a round earns nothing and trains nobody as an agent group."""

    ENVIRONMENT_FAULT = "environment_fault"
    INFRASTRUCTURE_FAULT = "infrastructure_fault"


class FinishReason(StrEnum):
    """Why the sampler stopped."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
