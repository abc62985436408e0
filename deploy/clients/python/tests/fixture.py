"""A gateway of one's own: each connection gets the next scripted answer, and its request is kept."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[socket.socket, Request], None]


def answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Script:
    """A whole answer; a body of bytes is sent as it is."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Scripted", f"content-length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + content)


def raw(data: bytes) -> Script:
    return lambda connection, _: connection.sendall(data)


def silence(connection: socket.socket, _: Request) -> None:
    """Answers nothing until the client hangs up."""
    connection.recv(1)


def drip(connection: socket.socket, _: Request) -> None:
    """One byte of a head that never ends, as often as it can be taken, until the client hangs up."""
    connection.settimeout(0.02)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        try:
            if connection.recv(1) == b"":
                return
        except TimeoutError:
            connection.sendall(b"x")


class Fixture:
    """Use it in a `with`; `requests` are those that came."""

    def __init__(self, *scripts: Script, unix: str | None = None) -> None:
        self._scripts = list(scripts)
        self.requests: list[Request] = []
        if unix is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(unix)
            self._listener.listen()
            self.url = f"unix://{unix}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Fixture:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Whoever waits in `accept` is woken, and finds the listener closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                request = _read(connection)
                self.requests.append(request)
                try:
                    self._scripts.pop(0)(connection, request)
                except OSError:
                    pass  # The client was faster to hang up.


def _read(connection: socket.socket) -> Request:
    with connection.makefile("rb") as reader:
        line = reader.readline().decode().strip()
        headers: dict[str, str] = {}
        while field := reader.readline().decode().strip():
            name, _, value = field.partition(":")
            headers[name.lower()] = value.strip()
        body = reader.read(int(headers.get("content-length", "0")))
    return Request(line, headers, body)


def outcome(status: str = "succeeded", **fields: Any) -> dict[str, Any]:
    """An outcome of the gateway."""
    error: dict[str, Any] | None = None
    if status in ("failed", "refused"):
        error = {
            "code": "timeout",
            "detail": "first_byte",
            "message": "The tool did not answer within 10 s.",
            "outcome": "unknown",
            "status": None,
            "retryable": False,
            "retry_after_ms": None,
            "details": [],
        }
    text = None if status == "running" else (error or {}).get("message", '{"n":1e2}')
    base: dict[str, Any] = {
        "id": "call_8f2c",
        "status": status,
        "tool": "lookup_order",
        "approval": {"id": "ap_1", "status": "pending"} if status == "waiting_approval" else None,
        "result": {"n": 1e2} if status == "succeeded" else None,
        "truncated": False,
        "error": error,
        "model": {"text": text, "is_error": error is not None, "reply_stands": False},
        "a_field_of_a_later_version": {},
    }
    return {**base, **fields}
