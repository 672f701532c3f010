"""Hypothesis strategies for every record and event, derived from the fields of the models."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from schemas.base import Payload
from schemas.event import Event
from schemas.events import PAYLOADS
from schemas.records import TokenSample

WORD = r"[A-Za-z0-9_-]{1,12}"
words = st.from_regex(WORD, fullmatch=True)
"""One token of a subject."""
keys = st.lists(words, min_size=1, max_size=4).map(".".join)
IN_KEYS = {"boot", "server", "swap", "handler", "incident"}
"""Text fields that become tokens of a key."""
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | integers | floats | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def models(cls: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Valid values of a model."""
    if cls is TokenSample:
        return token_samples()
    fields = {name: _field(name, info) for name, info in cls.model_fields.items()}
    return st.fixed_dictionaries(fields).map(lambda values: cls(**values))


@st.composite
def token_samples(draw: st.DrawFn) -> TokenSample:
    """Samples whose three columns are equally long."""
    length = draw(st.integers(0, 5))
    column = {"min_size": length, "max_size": length}
    return TokenSample(
        ids=tuple(draw(st.lists(integers, **column))),
        trained=tuple(draw(st.lists(st.booleans(), **column))),
        logprobs=tuple(draw(st.lists(floats, **column))),
        version_min=draw(integers),
        version_max=draw(integers),
        temperature=draw(st.floats(0.1, 2.0)),
    )


payloads: st.SearchStrategy[Payload] = st.sampled_from(sorted(PAYLOADS)).flatmap(lambda name: models(PAYLOADS[name]))


@st.composite
def events(draw: st.DrawFn, payload: st.SearchStrategy[Payload] = payloads) -> Event[Payload]:
    """Whole events of any type."""
    data = draw(payload)
    return Event[Payload](
        id=draw(words),
        type=data.type,
        version=data.version,
        run=draw(words),
        epoch=draw(st.integers(0, 9)),
        time=draw(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),
        key=data.key(),
        causation=draw(st.none() | words),
        correlation=draw(st.none() | words),
        data=data,
    )


def _field(name: str, info: FieldInfo) -> st.SearchStrategy[Any]:
    if name in IN_KEYS:
        return words
    return _value(info.annotation, info.metadata)


def _value(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    if annotation is JsonValue:
        return json_values
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [part for extra in args[1:] for part in (extra.metadata if isinstance(extra, FieldInfo) else [extra])]
        return _value(args[0], inner + metadata)
    if origin in (Union, UnionType):
        return st.one_of(*(_value(each, metadata) for each in args))
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(_value(args[0], []), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(_value(each, []) for each in args))
    if origin is dict:
        return st.dictionaries(_value(args[0], []), _value(args[1], []), max_size=3)
    if origin is Literal:
        return st.sampled_from(args)
    return _plain(annotation, metadata)


def _plain(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    limits = {key: getattr(part, key) for part in metadata for key in ("ge", "gt", "le", "lt") if hasattr(part, key)}
    pattern = next((part.pattern for part in metadata if getattr(part, "pattern", None)), None)
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if annotation is type(None):
        return st.none()
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(-(2**63) if low is None else low, 2**63 - 1 if high is None else high)
    if annotation is float:
        return st.floats(low, high, allow_nan=False, allow_infinity=False, exclude_min="gt" in limits)
    if annotation is str:
        return st.from_regex(pattern.strip("^$"), fullmatch=True) if pattern else st.text(max_size=20)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from(list(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return models(annotation)
    raise TypeError(f"no strategy for {annotation!r}: add one here")
