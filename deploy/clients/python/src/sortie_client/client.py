"""The client: list, call, wait."""

from __future__ import annotations

import json
import re
import secrets
import ssl
import string
import threading
import time
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, overload
from urllib.parse import quote

from .errors import AnswerLost, ApiError, UnexpectedAnswer
from .outcome import Outcome, is_final, read_outcome, refused_arguments
from .transport import Answer, Transport

Format: TypeAlias = Literal["openai", "anthropic", "gemini", "mcp"]

NO_OBJECT = "they are no JSON object"

_LETTERS = string.ascii_letters + string.digits
_KEPT_LISTS = 64
_LONGEST_POLL_MS = 60_000
_MARGIN = 5.0
"""Seconds that an answer may take on its way, beyond what the gateway was given."""


class Client:
    """A gateway and a key. It may be shared by threads: it keeps nothing but lists of tools.

    ``url`` is ``http://HOST:PORT``, ``https://HOST`` or ``unix:///PATH``.
    ``deadline_ms`` bounds each call that names no other.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8477",
        *,
        key: str | None = None,
        deadline_ms: int = 120_000,
        timeout: float = 10.0,
        connect_timeout: float = 3.0,
        connect_attempts: int = 3,
        max_answer_bytes: int = 8 * 1024 * 1024,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if key is not None and not re.fullmatch("[!-~]+", key):
            raise ValueError("the key is empty, or has a character that no header takes")
        self._transport = Transport(
            url, connect_timeout, connect_attempts, max_answer_bytes, ssl_context
        )
        self._headers = {"Accept": "application/json", "User-Agent": "sortie-client-python/0.1"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._deadline_ms = deadline_ms
        self._timeout = timeout
        self._lists: dict[str, tuple[str, bytes]] = {}
        self._lock = threading.Lock()

    @overload
    def tools(
        self, format: Literal["openai", "anthropic"], *, agent: str | None = None
    ) -> list[dict[str, Any]]: ...

    @overload
    def tools(
        self, format: Literal["gemini", "mcp"], *, agent: str | None = None
    ) -> dict[str, Any]: ...

    def tools(
        self, format: Format, *, agent: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """The tools in a provider's format, to hand to its API as they are; with ``agent`` those of that agent.

        The gateway is asked every time, and sends the list only where it changed.
        """
        of = "" if agent is None else f"/agents/{quote(agent, safe='')}"
        path = f"/v1{of}/tools?format={quote(format, safe='')}"
        with self._lock:
            kept = self._lists.get(path)
        headers = dict(self._headers)
        if kept is not None:
            headers["If-None-Match"] = kept[0]
        answer = self._transport.send("GET", path, headers, None, self._timeout, None)
        if answer.status == 304 and kept is not None:
            body = kept[1]
        else:
            body = _expect(answer, (200,), None).body
            self._keep(path, answer.headers.get("etag"), body)
        listed = _json(body, None)
        if not isinstance(listed, dict if format in ("gemini", "mcp") else list):
            raise UnexpectedAnswer(f"no list of tools in the format {format}", None)
        return listed

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        run_id: str | None = None,
        step: str | None = None,
        call_index: int | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        turn_index: int | None = None,
        round: int | None = None,
        end_user: Mapping[str, str] | None = None,
        model_call_id: str | None = None,
        call_id: str | None = None,
        credentials: Mapping[str, str] | None = None,
        deadline_ms: int | None = None,
        wait_ms: int | None = None,
    ) -> Outcome:
        """Calls a tool by its name or by the name that a list gave the model.

        ``arguments`` may be the model's own JSON text: it is passed on as it is, numbers included. Arguments that are no
        JSON object are an outcome too (``invalid_arguments``), so that the model can correct itself.

        ``run_id``, ``step`` and ``call_index`` say which call of a run this is: give the same ones when you make the same
        call again, and others for every other call.
        """
        bound = self._deadline_ms if deadline_ms is None else deadline_ms
        name = call_id or "call_" + "".join(secrets.choice(_LETTERS) for _ in range(16))
        if isinstance(arguments, str):
            if not _is_object(arguments):
                return refused_arguments(name, tool, NO_OBJECT)
            text = arguments
        else:
            text = _dump(arguments)
        rest = {
            "run_id": run_id,
            "step": step,
            "call_index": call_index,
            "agent_id": agent_id,
            "session_id": session_id,
            "turn_id": turn_id,
            "turn_index": turn_index,
            "round": round,
            "end_user": end_user,
            "model_call_id": model_call_id,
            "credentials": credentials,
            "wait_ms": wait_ms,
            "deadline_ms": bound,
            "call_id": name,
        }
        given = {field: value for field, value in rest.items() if value is not None}
        body = f'{{"tool":{_dump(tool)},"arguments":{text},{_dump(given)[1:]}'
        headers = {**self._headers, "Content-Type": "application/json"}
        answer = self._transport.send(
            "POST", "/v1/calls", headers, body.encode(), bound / 1000 + _MARGIN, name
        )
        try:
            return self._outcome(answer, name)
        except ApiError as error:
            # A key that stands twice, too deep a nesting: the model wrote it and can write it better.
            if error.status == 400 and f"{error.field}/".startswith("/arguments/"):
                return refused_arguments(name, tool, error.message)
            # The rest of the body is ours, and is JSON.
            if error.status == 400 and error.field == "" and isinstance(arguments, str):
                return refused_arguments(name, tool, NO_OBJECT)
            raise

    def wait(self, call: Outcome | str, *, timeout: float) -> Outcome:
        """Waits for a call that is running or waits for a person, by outcome or id.

        Returns its final outcome, or after ``timeout`` seconds the state that it then has.
        """
        call_id = call if isinstance(call, str) else call.id
        end = time.monotonic() + timeout
        while True:
            asked = time.monotonic()
            wait_ms = max(0, min(_LONGEST_POLL_MS, int((end - asked) * 1000)))
            path = f"/v1/calls/{quote(call_id, safe='')}?wait_ms={wait_ms}"
            bound = wait_ms / 1000 + _MARGIN
            answer = self._transport.send("GET", path, self._headers, None, bound, call_id)
            outcome = self._outcome(answer, call_id)
            now = time.monotonic()
            if is_final(outcome) or now >= end:
                return outcome
            # A gateway that answers at once is not asked again at once.
            time.sleep(max(0.0, min(end, asked + 1.0) - now))

    def _outcome(self, answer: Answer, call_id: str) -> Outcome:
        raw = _json(_expect(answer, (200, 202), call_id).body, call_id)
        try:
            return read_outcome(raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(f"the answer is no outcome: {error}", call_id) from error

    def _keep(self, path: str, etag: str | None, body: bytes) -> None:
        with self._lock:
            self._lists.pop(path, None)
            if etag is None:
                return
            while len(self._lists) >= _KEPT_LISTS:
                del self._lists[next(iter(self._lists))]
            self._lists[path] = (etag, body)


def _is_object(text: str) -> bool:
    try:
        text.encode()
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Mappings of other kinds; anything else is the caller's mistake."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _json(body: bytes, call_id: str | None) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer(f"the answer is no JSON: {error}", call_id) from error


def _expect(answer: Answer, statuses: tuple[int, ...], call_id: str | None) -> Answer:
    if answer.status in statuses:
        return answer
    try:
        error = json.loads(answer.body)["error"]
        code, message = error["code"], error["message"]
        field, request_id = error.get("field"), error.get("request_id")
        if not (isinstance(code, str) and isinstance(message, str)):
            raise TypeError("code and message are texts")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        what = f"status {answer.status}, which is no answer of a Sortie gateway"
        raise UnexpectedAnswer(what, call_id) from None
    if answer.status == 500:
        # It took the request, and broke somewhere on the way.
        raise AnswerLost(f"the gateway broke: {code}: {message} ({request_id})", call_id)
    after = answer.headers.get("retry-after", "")
    wait = float(after) if re.fullmatch("[0-9]{1,6}", after) else None
    raise ApiError(answer.status, code, message, field, request_id, wait)
