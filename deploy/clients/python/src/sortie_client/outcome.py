"""The outcome of a call: one type for each state, so that ``match`` knows whether all are handled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Sent: TypeAlias = Literal["not_sent", "answered", "unknown"]


@dataclass(frozen=True)
class CallError:
    """Why a call has no result."""

    code: str
    detail: str | None
    message: str
    outcome: Sent
    """What may have happened at the tool."""
    status: int | None
    retryable: bool
    """Making the same call again is safe and may help."""
    retry_after_ms: int | None
    details: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class _Call:
    id: str
    tool: str
    text: str
    """What the model reads."""
    is_error: bool
    raw: Mapping[str, Any] = field(repr=False, compare=False)
    """The outcome as the gateway wrote it."""


@dataclass(frozen=True)
class Succeeded(_Call):
    result: Any
    """The tool's JSON. A text, and JSON that was cut, are a ``str``. Numbers are Python's; ``text`` has them as they came."""
    truncated: bool
    reply_stands: bool


@dataclass(frozen=True)
class Failed(_Call):
    """It was tried and did not work."""

    error: CallError


@dataclass(frozen=True)
class Refused(_Call):
    """Nothing left the gateway."""

    error: CallError


@dataclass(frozen=True)
class WaitingApproval(_Call):
    """A person decides: hand ``text`` to the model, and ask for the call again later."""

    approval: Mapping[str, Any]


@dataclass(frozen=True)
class Running(_Call):
    """It was sent and has not ended yet."""


Outcome: TypeAlias = Succeeded | Failed | Refused | WaitingApproval | Running


def model_text(outcome: Outcome) -> str:
    """What the model reads: the result, or one plain sentence."""
    return outcome.text


def is_error(outcome: Outcome) -> bool:
    """For the error flag of a provider's tool result."""
    return outcome.is_error


def is_final(outcome: Outcome) -> bool:
    """Whether nothing about it will change."""
    return not isinstance(outcome, (WaitingApproval, Running))


def read_outcome(raw: Mapping[str, Any]) -> Outcome:
    """Reads the gateway's JSON; KeyError, TypeError or ValueError where it is none. Fields that are not known are left alone."""
    model: Mapping[str, Any] = raw.get("model") or {}
    status: str = raw["status"]
    text = model.get("text")
    if text is None and status == "running":
        text = "The call is still running."
    call_id, tool = raw["id"], raw["tool"]
    if not (isinstance(call_id, str) and isinstance(tool, str) and isinstance(text, str)):
        raise TypeError("id, tool and model.text are texts")
    flag = model.get("is_error") is True
    if status == "succeeded":
        cut, stands = raw.get("truncated") is True, model.get("reply_stands") is True
        return Succeeded(call_id, tool, text, flag, raw, raw["result"], cut, stands)
    if status == "failed":
        return Failed(call_id, tool, text, flag, raw, _read_error(raw["error"]))
    if status == "refused":
        return Refused(call_id, tool, text, flag, raw, _read_error(raw["error"]))
    if status == "waiting_approval":
        return WaitingApproval(call_id, tool, text, flag, raw, raw.get("approval") or {})
    if status == "running":
        return Running(call_id, tool, text, flag, raw)
    raise ValueError(f"a status that this client does not know: {status!r}")


def _read_error(raw: Mapping[str, Any]) -> CallError:
    return CallError(
        code=raw["code"],
        detail=raw.get("detail"),
        message=raw["message"],
        outcome=raw["outcome"],
        status=raw.get("status"),
        retryable=raw.get("retryable") is True,
        retry_after_ms=raw.get("retry_after_ms"),
        details=tuple(raw.get("details") or ()),
    )


def refused_arguments(call_id: str, tool: str, problem: str) -> Refused:
    """What the gateway would say of arguments that it cannot even read."""
    text = f"The arguments do not fit the tool: {problem}."
    error = CallError("invalid_arguments", None, text, "not_sent", None, False, None)
    return Refused(call_id, tool, text, True, {}, error)
