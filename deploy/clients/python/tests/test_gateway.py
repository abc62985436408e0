"""The client and the examples against a gateway that runs: the variables say where.

Its tools are `lookup_order` (with `order_number`, answers {"status":"shipped"}), `scans.get` (any arguments, the same),
`broken` (answers 503) and `cancel_order` (asks the person first).
"""

from __future__ import annotations

import itertools
import json
import os
import unittest
import urllib.request
from typing import Any

import anthropic_messages
import gemini
import mcp_server
import openai_chat
import openai_responses

from sortie_client import (
    ApiError,
    Client,
    Failed,
    Refused,
    Succeeded,
    WaitingApproval,
    is_error,
    model_text,
)

SHIPPED = '{"status":"shipped"}'
WRONG = "The arguments do not fit the tool: "


@unittest.skipUnless("SORTIE_URL" in os.environ, "SORTIE_URL and SORTIE_KEY name no gateway")
class Gateway(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(os.environ["SORTIE_URL"], key=os.environ["SORTIE_KEY"])
        self.run_id = f"run_{self.id().rpartition('.')[2]}"
        self.steps = itertools.count(1)

    def call(self, tool: str, arguments: Any) -> Any:
        step = str(next(self.steps))
        return self.client.call(tool, arguments, run_id=self.run_id, step=step)

    def test_a_call_has_its_result(self) -> None:
        done = self.call("lookup_order", {"order_number": "A-1042"})
        assert isinstance(done, Succeeded)
        self.assertEqual(done.result, {"status": "shipped"})
        self.assertEqual((model_text(done), is_error(done)), (SHIPPED, False))

    def test_a_tool_that_fails_is_an_outcome(self) -> None:
        failed = self.call("broken", {})
        assert isinstance(failed, Failed)
        self.assertEqual((failed.error.code, failed.error.status), ("http_status", 503))
        refused = self.call("lookup_order", {})
        assert isinstance(refused, Refused)
        self.assertEqual(refused.error.code, "invalid_arguments")
        self.assertEqual(refused.error.details[0]["keyword"], "required")

    def test_a_call_that_waits_is_waited_for(self) -> None:
        waits = self.call("cancel_order", {})
        assert isinstance(waits, WaitingApproval), waits
        self.assertIn("Ask the person", model_text(waits))
        still = self.client.wait(waits, timeout=0)
        self.assertEqual((still.id, type(still)), (waits.id, WaitingApproval))
        request = urllib.request.Request(
            f"{os.environ['SORTIE_URL']}/v1/calls/{waits.id}/confirmed",
            data=json.dumps({"yes": True}).encode(),
            headers={
                "Authorization": f"Bearer {os.environ['SORTIE_KEY']}",
                "Content-Type": "application/json",
            },
        )
        urllib.request.urlopen(request).close()
        done = self.client.wait(waits.id, timeout=30)
        assert isinstance(done, Succeeded), done
        self.assertEqual((done.id, model_text(done)), (waits.id, SHIPPED))

    def test_arguments_that_are_not_readable_are_an_outcome(self) -> None:
        for text in ['{"a":1,"a":2}', '{"a":"\\ud800"}', '{"a":' * 70 + "1" + "}" * 70]:
            with self.subTest(text=text[:20]):
                refused = self.call("scans.get", text)
                assert isinstance(refused, Refused), refused
                self.assertTrue(model_text(refused).startswith(WRONG), model_text(refused))

    def test_what_is_wrong_with_the_request_is_an_exception(self) -> None:
        with self.assertRaises(ApiError) as caught:
            self.client.call("lookup_order", {"order_number": "A"}, step="\n")
        self.assertEqual((caught.exception.code, caught.exception.field), ("bad_request", "/step"))
        self.assertRegex(str(caught.exception.request_id), "^req_")
        with self.assertRaises(ApiError) as caught:
            Client(os.environ["SORTIE_URL"], key="sk-of-nobody").call("lookup_order", {})
        self.assertEqual((caught.exception.status, caught.exception.code), (401, "unauthorized"))

    def test_a_body_that_is_too_long_is_told(self) -> None:
        with self.assertRaises(ApiError) as caught:
            self.call("scans.get", {"a": "x" * 3_000_000})
        self.assertEqual(caught.exception.code, "too_large")

    def test_every_format_lists_the_tools(self) -> None:
        names = ["broken", "cancel_order", "lookup_order", "scans_get"]
        openai = self.client.tools("openai")
        self.assertEqual(sorted(tool["function"]["name"] for tool in openai), names)
        self.assertEqual(openai, self.client.tools("openai"))
        anthropic = self.client.tools("anthropic")
        self.assertEqual(sorted(tool["name"] for tool in anthropic), names)
        gemini = self.client.tools("gemini")["functionDeclarations"]
        self.assertEqual(sorted(tool["name"] for tool in gemini), names)
        mcp = self.client.tools("mcp")["tools"]
        self.assertEqual(len(mcp), len(names))

    def test_a_name_from_the_list_is_called(self) -> None:
        self.assertEqual(model_text(self.call("scans_get", {"scanId": "RX-4471"})), SHIPPED)

    def test_openai_chat(self) -> None:
        function = {"name": "lookup_order", "arguments": '{"order_number": "A-1042"}'}
        bad = {"name": "lookup_order", "arguments": '{"order_number": '}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_a", "type": "function", "function": function},
                {"id": "call_b", "type": "function", "function": bad},
            ],
        }
        replies = openai_chat.answer(self.client, message, self.run_id, "1")
        self.assertEqual(replies[0], {"role": "tool", "tool_call_id": "call_a", "content": SHIPPED})
        self.assertEqual(replies[1]["tool_call_id"], "call_b")
        self.assertEqual(replies[1]["content"], WRONG + "they are no JSON object.")
        self.assertEqual(openai_chat.answer(self.client, {"content": "Hi."}, self.run_id, "2"), [])

    def test_openai_responses(self) -> None:
        tool = openai_responses.tools(self.client)[0]
        self.assertEqual((tool["type"], tool["strict"]), ("function", False))
        self.assertIn("parameters", tool)
        call: dict[str, Any] = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_a",
            "name": "lookup_order",
            "arguments": '{"order_number":"A-1042"}',
            "status": "completed",
        }
        output: list[dict[str, Any]] = [{"type": "reasoning", "id": "rs_1", "summary": []}, call]
        items = openai_responses.answer(self.client, output, self.run_id, "1")
        self.assertEqual(
            items, [{"type": "function_call_output", "call_id": "call_a", "output": SHIPPED}]
        )

    def test_anthropic_messages(self) -> None:
        use = {"type": "tool_use", "name": "lookup_order"}
        message = {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look it up."},
                {**use, "id": "toolu_a", "input": {"order_number": "A-1042"}},
                {**use, "id": "toolu_b", "input": {}},
            ],
            "stop_reason": "tool_use",
        }
        reply = anthropic_messages.answer(self.client, message, self.run_id, "1")
        self.assertEqual(reply["role"], "user")
        good, bad = reply["content"]
        self.assertEqual(
            good,
            {"type": "tool_result", "tool_use_id": "toolu_a", "content": SHIPPED, "is_error": False},
        )
        self.assertTrue(bad["is_error"] and bad["content"].startswith(WRONG))

    def test_gemini(self) -> None:
        good = {"id": "fc_1", "name": "lookup_order", "args": {"order_number": "A-1042"}}
        content = {
            "role": "model",
            "parts": [
                {"text": "I look it up."},
                {"functionCall": good},
                {"functionCall": {"name": "broken"}},
            ],
        }
        reply = gemini.answer(self.client, content, self.run_id, "1")
        self.assertEqual(reply["role"], "user")
        first, second = [part["functionResponse"] for part in reply["parts"]]
        self.assertEqual(
            first, {"id": "fc_1", "name": "lookup_order", "response": {"output": SHIPPED}}
        )
        self.assertEqual((second["name"], list(second["response"])), ("broken", ["error"]))

    def test_mcp_server(self) -> None:
        def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            step = str(next(self.steps))
            response = mcp_server.handle(self.client, request, self.run_id, step)
            self.assertEqual((response["jsonrpc"], response["id"]), ("2.0", 7))
            result: dict[str, Any] = response["result"]
            return result

        called = ask(
            "tools/call", {"name": "lookup_order", "arguments": {"order_number": "A-1042"}}
        )
        self.assertEqual(
            called, {"content": [{"type": "text", "text": SHIPPED}], "isError": False}
        )
        self.assertTrue(ask("tools/call", {"name": "broken"})["isError"])
        self.assertEqual(len(ask("tools/list", {})["tools"]), 4)


if __name__ == "__main__":
    unittest.main()
