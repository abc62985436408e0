"""What can go wrong between this program and the gateway."""

from __future__ import annotations


class SortieError(Exception):
    """Every exception of this package."""


class NotConnected(SortieError):
    """The connection to the gateway could not be made. Nothing was sent."""


class AnswerLost(SortieError):
    """The request went out and no whole answer came back, or the gateway broke: the call may have taken effect.

    ``call_id`` names the call in the gateway's log; it is None where the request was no call.
    """

    def __init__(self, message: str, call_id: str | None) -> None:
        super().__init__(message)
        self.call_id = call_id


class UnexpectedAnswer(AnswerLost):
    """The answer is none of a Sortie gateway: no JSON, too long, another shape. The call may have taken effect."""


class ApiError(SortieError):
    """The gateway did not take the request: its key, its body, its path. No tool was called."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None,
        request_id: str | None,
        retry_after: float | None,
    ) -> None:
        super().__init__(f"{code}: {message}" + (f" ({field})" if field else ""))
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        """A JSON pointer into the body."""
        self.request_id = request_id
        self.retry_after = retry_after
        """Seconds, where the gateway named them."""
