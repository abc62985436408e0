// The client and the examples against a gateway that runs: the variables say where.
//
// Its tools are `lookup_order` (with `order_number`, answers {"status":"shipped"}), `scans.get` (any arguments, the same),
// `broken` (answers 503) and `cancel_order` (asks the person first).

import assert from "node:assert/strict";
import { test as always } from "node:test";
import * as anthropic from "../examples/anthropic-messages.js";
import * as gemini from "../examples/gemini.js";
import * as mcp from "../examples/mcp-server.js";
import * as chat from "../examples/openai-chat.js";
import * as responses from "../examples/openai-responses.js";
import { ApiError, Client, modelText } from "../src/index.js";

const url = process.env["SORTIE_URL"];
const client = new Client({ url: url ?? "http://127.0.0.1:1", key: process.env["SORTIE_KEY"] ?? "none" });
const SHIPPED = '{"status":"shipped"}';
const WRONG = "The arguments do not fit the tool: ";
const order_number = "A-1042";

/** A test with a run of its own. */
function test(name: string, body: (run: string) => Promise<void>): void {
  const skip = url === undefined && "SORTIE_URL and SORTIE_KEY name no gateway";
  always(name, { skip }, () => body(`run_node_${name.replaceAll(/\W/g, "_")}`));
}

test("a call has its result", async (run_id) => {
  const done = await client.call("lookup_order", { order_number }, { run_id, step: "1" });
  assert(done.status === "succeeded", JSON.stringify(done));
  assert.deepEqual([done.result, modelText(done)], [{ status: "shipped" }, SHIPPED]);
});

test("a tool that fails is an outcome", async (run_id) => {
  const failed = await client.call("broken", {}, { run_id, step: "1" });
  assert(failed.status === "failed");
  assert.deepEqual([failed.error.code, failed.error.status], ["http_status", 503]);
  const refused = await client.call("lookup_order", {}, { run_id, step: "2" });
  assert(refused.status === "refused");
  assert.deepEqual([refused.error.code, refused.error.details[0]?.keyword], ["invalid_arguments", "required"]);
});

test("a call that waits is waited for", async (run_id) => {
  const waits = await client.call("cancel_order", {}, { run_id, step: "1" });
  assert.equal(waits.status, "waiting_approval");
  assert(modelText(waits).startsWith("Ask the person"), modelText(waits));
  const still = await client.wait(waits, { timeoutMs: 0 });
  assert.deepEqual([still.id, still.status], [waits.id, "waiting_approval"]);
  const headers = { authorization: `Bearer ${process.env["SORTIE_KEY"]}`, "content-type": "application/json" };
  const yes = { method: "POST", headers, body: JSON.stringify({ yes: true }) };
  assert((await fetch(`${url}/v1/calls/${waits.id}/confirmed`, yes)).ok);
  const done = await client.wait(waits.id, { timeoutMs: 30_000 });
  assert.deepEqual([done.id, done.status, modelText(done)], [waits.id, "succeeded", SHIPPED]);
});

test("arguments that are not readable are an outcome", async (run_id) => {
  for (const text of ['{"a":1,"a":2}', '{"a":"\\ud800"}', `${'{"a":'.repeat(70)}1${"}".repeat(70)}`]) {
    const refused = await client.call("scans.get", text, { run_id, step: "1" });
    assert.equal(refused.status, "refused", text);
    assert(modelText(refused).startsWith(WRONG), modelText(refused));
  }
});

test("what is wrong with the request is an exception", async () => {
  await assert.rejects(client.call("lookup_order", { order_number }, { step: "\n" }), (error) => {
    assert(error instanceof ApiError);
    assert.deepEqual([error.code, error.field], ["bad_request", "/step"]);
    assert.match(String(error.requestId), /^req_/);
    return true;
  });
  const nobody = new Client({ ...(url === undefined ? {} : { url }), key: "sk-of-nobody" });
  await assert.rejects(nobody.call("lookup_order", {}), { status: 401, code: "unauthorized" });
});

test("a body that is too long is told", async (run_id) => {
  const call = client.call("scans.get", { a: "x".repeat(3_000_000) }, { run_id, step: "1" });
  await assert.rejects(call, { code: "too_large" });
});

test("every format lists the tools", async () => {
  const names = ["broken", "cancel_order", "lookup_order", "scans_get"];
  const openai = await client.tools("openai");
  assert.deepEqual(openai.map((tool) => tool.function.name).sort(), names);
  assert.deepEqual(await client.tools("openai"), openai);
  assert.deepEqual((await client.tools("anthropic")).map((tool) => tool.name).sort(), names);
  assert.deepEqual((await client.tools("gemini")).functionDeclarations.map((tool) => tool.name).sort(), names);
  assert.equal((await client.tools("mcp")).tools.length, names.length);
});

test("a name from the list is called", async (run_id) => {
  assert.equal(modelText(await client.call("scans_get", { scanId: "RX-4471" }, { run_id, step: "1" })), SHIPPED);
});

test("openai chat", async (run_id) => {
  const call = (id: string, args: string) => ({
    id,
    type: "function",
    function: { name: "lookup_order", arguments: args },
  });
  const tool_calls = [call("call_a", `{"order_number": "${order_number}"}`), call("call_b", '{"order_number": ')];
  const message = { role: "assistant", content: null, tool_calls };
  assert.deepEqual(await chat.answer(client, message, run_id, "1"), [
    { role: "tool", tool_call_id: "call_a", content: SHIPPED },
    { role: "tool", tool_call_id: "call_b", content: `${WRONG}they are no JSON object.` },
  ]);
  assert.deepEqual(await chat.answer(client, {}, run_id, "2"), []);
});

test("openai responses", async (run_id) => {
  const [tool] = await responses.tools(client);
  assert(tool && "parameters" in tool);
  assert.deepEqual([tool.type, tool.strict], ["function", false]);
  const call = {
    type: "function_call",
    id: "fc_1",
    call_id: "call_a",
    name: "lookup_order",
    arguments: `{"order_number":"${order_number}"}`,
  };
  const output = [{ type: "reasoning", id: "rs_1", summary: [] }, call];
  assert.deepEqual(await responses.answer(client, output, run_id, "1"), [
    { type: "function_call_output", call_id: "call_a", output: SHIPPED },
  ]);
});

test("anthropic messages", async (run_id) => {
  const use = { type: "tool_use", name: "lookup_order" };
  const content = [
    { type: "text", text: "I look it up." },
    { ...use, id: "toolu_a", input: { order_number } },
    { ...use, id: "toolu_b", input: {} },
  ];
  const reply = await anthropic.answer(client, { content }, run_id, "1");
  assert.equal(reply.role, "user");
  const [good, bad] = reply.content;
  assert.deepEqual(good, { type: "tool_result", tool_use_id: "toolu_a", content: SHIPPED, is_error: false });
  assert(bad?.is_error && bad.content.startsWith(WRONG));
});

test("gemini", async (run_id) => {
  const parts = [
    { text: "I look it up." },
    { functionCall: { id: "fc_1", name: "lookup_order", args: { order_number } } },
    { functionCall: { name: "broken" } },
  ];
  const reply = await gemini.answer(client, { parts }, run_id, "1");
  const [good, bad] = reply.parts.map((part) => part.functionResponse);
  assert.deepEqual(good, { id: "fc_1", name: "lookup_order", response: { output: SHIPPED } });
  assert.deepEqual([bad?.name, Object.keys(bad?.response ?? {})], ["broken", ["error"]]);
});

test("mcp server", async (run_id) => {
  const ask = (method: string, params: object) => mcp.handle(client, { id: 7, method, params }, run_id, "1");
  const called = await ask("tools/call", { name: "lookup_order", arguments: { order_number } });
  const result = { content: [{ type: "text", text: SHIPPED }], isError: false };
  assert.deepEqual(called, { jsonrpc: "2.0", id: 7, result });
  const list = await ask("tools/list", {});
  assert("tools" in list.result && list.result.tools.length === 4);
});
