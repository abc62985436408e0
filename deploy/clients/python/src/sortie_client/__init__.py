"""Calls tools through a Sortie gateway: list them in a provider's format, call, wait.

A failing tool is not an exception: ``Client.call`` returns an outcome, and ``model_text`` and ``is_error`` say what the
model reads. Exceptions speak of the request to the gateway.
"""

from .client import Client, Format
from .errors import AnswerLost, ApiError, NotConnected, SortieError, UnexpectedAnswer
from .outcome import (
    CallError,
    Failed,
    Outcome,
    Refused,
    Running,
    Succeeded,
    WaitingApproval,
    is_error,
    is_final,
    model_text,
)

__all__ = [
    "AnswerLost",
    "ApiError",
    "CallError",
    "Client",
    "Failed",
    "Format",
    "NotConnected",
    "Outcome",
    "Refused",
    "Running",
    "SortieError",
    "Succeeded",
    "UnexpectedAnswer",
    "WaitingApproval",
    "is_error",
    "is_final",
    "model_text",
]
