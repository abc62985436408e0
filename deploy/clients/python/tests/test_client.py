"""The client against answers that are scripted: what no gateway would say on demand."""

from __future__ import annotations

import os
import socket
import tempfile
import time
import unittest
from typing import Any

from sortie_client import (
    AnswerLost,
    ApiError,
    Client,
    Failed,
    NotConnected,
    Refused,
    Running,
    Succeeded,
    UnexpectedAnswer,
    WaitingApproval,
    is_error,
    is_final,
    model_text,
)

from .fixture import Fixture, Script, answer, drip, outcome, raw, silence

KEY = "sk-test-Vq7RkX2mPz9LcT4nBw6"
TOOLS = [{"type": "function", "function": {"name": "lookup_order"}}]


class Calls(unittest.TestCase):
    def one(self, script: Script, **options: Any) -> Any:
        with Fixture(script) as gateway:
            self.gateway = gateway
            return Client(gateway.url, key=KEY, **options).call("lookup_order", {"n": 1})

    def test_a_call_is_sent_as_the_contract_has_it(self) -> None:
        with Fixture(answer(200, outcome())) as gateway:
            client = Client(gateway.url + "/behind/", key=KEY, deadline_ms=7000)
            client.call(
                "lookup_order", {"n": 1}, run_id="run_1", step="3", end_user={"id": "eu_1"}
            )
        (request,) = gateway.requests
        self.assertEqual(request.line, "POST /behind/v1/calls HTTP/1.1")
        self.assertEqual(request.headers["authorization"], f"Bearer {KEY}")
        self.assertEqual(request.headers["content-type"], "application/json")
        body = request.json()
        self.assertRegex(body.pop("call_id"), "^call_[A-Za-z0-9]{16}$")
        expected = {"tool": "lookup_order", "arguments": {"n": 1}, "run_id": "run_1", "step": "3"}
        self.assertEqual(
            body, {**expected, "end_user": {"id": "eu_1"}, "deadline_ms": 7000}
        )

    def test_the_models_text_is_passed_on_as_it_is(self) -> None:
        text = '{ "n": 1e2, "id": 12345678901234567890 }'
        with Fixture(answer(200, outcome())) as gateway:
            Client(gateway.url, key=KEY).call("lookup_order", text)
        self.assertIn(f'"arguments":{text},'.encode(), gateway.requests[0].body)

    def test_text_that_is_no_object_is_an_outcome_and_is_not_sent(self) -> None:
        client = Client("http://127.0.0.1:1", key=KEY, connect_attempts=1)
        for text in ["", "[]", "{", '{"a": NaN}', "[" * 100_000, '{"a": "\ud800"}']:
            refused = client.call("lookup_order", text)
            assert isinstance(refused, Refused)
            self.assertEqual(refused.error.code, "invalid_arguments")
            self.assertEqual(refused.error.outcome, "not_sent")
            self.assertTrue(is_error(refused))
            self.assertEqual(
                model_text(refused), "The arguments do not fit the tool: they are no JSON object."
            )

    def test_arguments_that_the_gateway_cannot_read_are_an_outcome(self) -> None:
        error = {"code": "bad_request", "message": "the key at `/a` stands twice"}
        for field, ours in [("/arguments/a", True), ("/arguments", True), ("/step", False)]:
            script = answer(400, {"error": {**error, "field": field, "request_id": "req_1"}})
            if ours:
                refused = self.one(script)
                assert isinstance(refused, Refused)
                self.assertIn("stands twice", model_text(refused))
            else:
                with self.assertRaises(ApiError):
                    self.one(script)

    def test_each_state_has_its_type(self) -> None:
        done = self.one(answer(200, outcome()))
        assert isinstance(done, Succeeded)
        self.assertEqual((done.result, model_text(done)), ({"n": 100.0}, '{"n":1e2}'))
        self.assertEqual((is_error(done), is_final(done)), (False, True))
        failed = self.one(answer(200, outcome("failed")))
        assert isinstance(failed, Failed)
        self.assertEqual(failed.error.detail, "first_byte")
        self.assertEqual((is_error(failed), is_final(failed)), (True, True))
        waiting = self.one(
            answer(202, outcome("waiting_approval"), {"location": "/v1/calls/call_8f2c"})
        )
        assert isinstance(waiting, WaitingApproval)
        self.assertEqual(waiting.approval["id"], "ap_1")
        self.assertEqual((is_error(waiting), is_final(waiting)), (False, False))
        running = self.one(answer(202, outcome("running")))
        assert isinstance(running, Running)
        self.assertEqual(model_text(running), "The call is still running.")
        self.assertFalse(is_final(running))

    def test_an_error_of_the_api_is_typed(self) -> None:
        error = {"code": "draining", "message": "later", "field": None, "request_id": "req_1"}
        with self.assertRaises(ApiError) as caught:
            self.one(answer(503, {"error": error}, {"retry-after": "2"}))
        found = caught.exception
        self.assertEqual((found.status, found.code, found.message), (503, "draining", "later"))
        self.assertEqual((found.field, found.request_id, found.retry_after), (None, "req_1", 2.0))

    def test_nothing_is_sent_again(self) -> None:
        for script in [raw(b""), raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")]:
            with self.assertRaises(AnswerLost) as caught:
                self.one(script)
            self.assertRegex(str(caught.exception.call_id), "^call_")
            self.assertEqual(len(self.gateway.requests), 1)

    def test_after_a_gateway_that_broke_nobody_knows(self) -> None:
        error = {"code": "internal", "message": "it broke", "field": None, "request_id": "req_1"}
        with self.assertRaises(AnswerLost) as caught:
            self.one(answer(500, {"error": error}))
        self.assertRegex(str(caught.exception.call_id), "^call_")
        self.assertIn("req_1", str(caught.exception))

    def test_a_gateway_that_says_nothing_or_drips_is_left_in_time(self) -> None:
        for script in [silence, drip]:
            with Fixture(script) as gateway:
                began = time.monotonic()
                with self.assertRaises(AnswerLost):
                    Client(gateway.url, key=KEY, timeout=0.3).tools("openai")
                self.assertLess(time.monotonic() - began, 3)

    def test_answers_of_others_are_told_apart(self) -> None:
        for script in [
            answer(200, b"<html>"),
            answer(200, []),
            answer(200, outcome("dreaming")),
            answer(200, {**outcome(), "model": {}}),
            answer(302, b"", {"location": "http://127.0.0.1:1/"}),
            answer(502, b"<html>"),
            answer(500, {"error": "no"}),
            answer(504, {"error": {"code": 504, "message": "of a proxy in between"}}),
            answer(200, b"[" * 100_000),
        ]:
            with self.assertRaises(UnexpectedAnswer):
                self.one(script)
            self.assertEqual(len(self.gateway.requests), 1)

    def test_an_answer_is_bounded(self) -> None:
        with self.assertRaises(UnexpectedAnswer):
            self.one(answer(200, outcome(padding="x" * 5000)), max_answer_bytes=4096)
        self.one(answer(200, outcome(padding="x" * 3000)), max_answer_bytes=4096)

    def test_a_connection_that_cannot_be_made_is_tried_again(self) -> None:
        # It is bound and does not listen, so that nobody else gets the port meanwhile.
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            began = time.monotonic()
            with self.assertRaises(NotConnected):
                Client(f"http://127.0.0.1:{port}", connect_attempts=3).call("lookup_order", {})
        # Two waits, of 0.1 s and 0.2 s at least.
        self.assertGreater(time.monotonic() - began, 0.25)

    def test_a_host_that_is_no_name_is_not_connected_to(self) -> None:
        for host in ["a..b", "x" * 70]:
            with self.assertRaises(NotConnected):
                Client(f"http://{host}:1").call("lookup_order", {})

    def test_a_unix_socket_is_spoken_to(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "api.sock")
            with Fixture(answer(200, outcome()), unix=path) as gateway:
                Client(gateway.url).call("lookup_order", {})
        self.assertEqual(gateway.requests[0].headers["host"], "localhost")
        self.assertNotIn("authorization", gateway.requests[0].headers)

    def test_a_key_that_is_no_key_is_refused_before_anything_is_sent(self) -> None:
        for key in ["", " ", "sk\n", "sk\r\nX-A: b", "schlüssel"]:
            with self.assertRaises(ValueError):
                Client(key=key)
        for url in ["", "127.0.0.1:8477", "ftp://a", "http://", "http://a:b@c", "http://a?b=c"]:
            with self.assertRaises(ValueError):
                Client(url)


class Lists(unittest.TestCase):
    def test_a_list_is_sent_once_while_it_stays_the_same(self) -> None:
        changed = [*TOOLS, *TOOLS]
        with Fixture(
            answer(200, TOOLS, {"ETag": '"a"'}),
            answer(304, b""),
            answer(200, changed, {"etag": '"b"'}),
            answer(304, b""),
            answer(200, TOOLS, {"etag": '"c"'}),
        ) as gateway:
            client = Client(gateway.url, key=KEY)
            first = client.tools("openai")
            first.append({"type": "changed by the caller"})
            self.assertEqual(client.tools("openai"), TOOLS)
            self.assertEqual(client.tools("openai"), changed)
            self.assertEqual(client.tools("openai"), changed)
            client.tools("openai", agent="support/2")
        asked = [request.headers.get("if-none-match") for request in gateway.requests]
        self.assertEqual(asked, [None, '"a"', '"a"', '"b"', None])
        self.assertEqual(gateway.requests[0].line, "GET /v1/tools?format=openai HTTP/1.1")
        self.assertEqual(
            gateway.requests[4].line, "GET /v1/agents/support%2F2/tools?format=openai HTTP/1.1"
        )

    def test_another_shape_is_no_list(self) -> None:
        with Fixture(answer(200, {"tools": []}), answer(304, b"")) as gateway:
            client = Client(gateway.url, key=KEY)
            with self.assertRaises(UnexpectedAnswer):
                client.tools("openai")
            with self.assertRaises(UnexpectedAnswer):
                client.tools("openai")


class Waiting(unittest.TestCase):
    def test_it_asks_until_the_call_is_final(self) -> None:
        with Fixture(
            answer(200, outcome("waiting_approval")),
            answer(200, outcome("running")),
            answer(200, outcome()),
        ) as gateway:
            self.assertIsInstance(
                Client(gateway.url, key=KEY).wait("call_8f2c", timeout=90), Succeeded
            )
        self.assertEqual(
            gateway.requests[0].line, "GET /v1/calls/call_8f2c?wait_ms=60000 HTTP/1.1"
        )
        self.assertEqual(len(gateway.requests), 3)

    def test_after_its_time_the_state_is_what_it_is(self) -> None:
        with Fixture(answer(202, outcome("running")), answer(200, outcome("running"))) as gateway:
            client = Client(gateway.url, key=KEY)
            state = client.call("lookup_order", {})
            self.assertIsInstance(client.wait(state, timeout=0), Running)

    def test_a_call_that_nobody_knows_is_an_error(self) -> None:
        error = {"code": "not_found", "message": "no", "field": None, "request_id": "req_1"}
        with Fixture(answer(404, {"error": error})) as gateway:
            with self.assertRaises(ApiError):
                Client(gateway.url, key=KEY).wait("call_8f2c", timeout=1)


if __name__ == "__main__":
    unittest.main()
