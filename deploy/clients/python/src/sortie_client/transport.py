"""One HTTP request on one connection, bounded in time and size.

No connection is kept. One that the gateway closed in between would leave a request that was sent without an answer, and
nobody could tell whether to send it again.
"""

from __future__ import annotations

import http.client
import io
import random
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from .errors import AnswerLost, NotConnected, UnexpectedAnswer


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Transport:
    """Where the gateway is, and the bounds of every request."""

    def __init__(
        self,
        url: str,
        connect_timeout: float,
        connect_attempts: int,
        max_answer_bytes: int,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        parts = urlsplit(url)
        self._socket_path: str | None = None
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "unix":
            self._socket_path = unquote(parts.path)
            self._host, self._port, self.prefix = "localhost", 80, ""
        elif parts.scheme in ("http", "https") and parts.hostname:
            if parts.username is not None or parts.query or parts.fragment:
                raise ValueError("the URL of the gateway holds a host, a port and a path at most")
            if parts.scheme == "https":
                self._tls = ssl_context or ssl.create_default_context()
            self._host = parts.hostname
            self._port = parts.port or (443 if self._tls else 80)
            self.prefix = parts.path.rstrip("/")
        else:
            raise ValueError(f"not the URL of a gateway (http, https or unix): {url!r}")
        if connect_timeout <= 0 or connect_attempts < 1 or max_answer_bytes < 1:
            raise ValueError("timeouts, attempts and bounds are positive")
        self._connect_timeout = connect_timeout
        self._connect_attempts = connect_attempts
        self._max_answer_bytes = max_answer_bytes

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float,
        call_id: str | None,
    ) -> Answer:
        """Sends one request. The one retry rule: only where the connection could not be made."""
        sock = self._connect()
        deadline = _Deadline(sock, timeout)
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.sock = cast(socket.socket, deadline)
        try:
            try:
                connection.request(
                    method, self.prefix + path, body, {**headers, "Connection": "close"}
                )
            except (BrokenPipeError, ConnectionResetError):
                # A body that is too long is answered before it is read: the answer may be there.
                pass
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            content = response.read(self._max_answer_bytes + 1)
            if len(content) <= self._max_answer_bytes and response.length:
                raise http.client.IncompleteRead(content)
            answer = Answer(response.status, names, content)
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            raise AnswerLost(f"no whole answer from the gateway: {what}", call_id) from error
        finally:
            connection.close()
            sock.close()
        if len(answer.body) > self._max_answer_bytes:
            raise UnexpectedAnswer(
                f"the answer has more than {self._max_answer_bytes} bytes", call_id
            )
        return answer

    def _connect(self) -> socket.socket:
        attempt = 0
        while True:
            try:
                return self._connect_once()
            # A UnicodeError is a host that is no name.
            except (OSError, UnicodeError) as error:
                attempt += 1
                lasts = isinstance(error, (ssl.SSLError, UnicodeError))
                if attempt >= self._connect_attempts or lasts:
                    raise NotConnected(f"cannot connect to the gateway: {error}") from error
                time.sleep(min(1.0, 0.1 * 2**attempt) * random.uniform(0.5, 1.0))

    def _connect_once(self) -> socket.socket:
        if self._socket_path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(self._connect_timeout)
                sock.connect(self._socket_path)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((self._host, self._port), self._connect_timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(sock, server_hostname=self._host) if self._tls else sock
        except BaseException:
            sock.close()
            raise


class _Deadline:
    """A socket whose every step ends at one moment: a peer that drips bytes gains nothing."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._sock = sock
        self._end = time.monotonic() + timeout

    def arm(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._sock.settimeout(left)

    def sendall(self, data: Any) -> None:
        self.arm()
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Reader(self, self._sock))

    def close(self) -> None:
        """The socket's owner closes it: http.client does so before the answer is read."""


class _Reader(io.RawIOBase):
    def __init__(self, deadline: _Deadline, sock: socket.socket) -> None:
        self._deadline = deadline
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._deadline.arm()
        return self._sock.recv_into(buffer)
