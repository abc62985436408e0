// The client against answers that are scripted: what no gateway would say on demand.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import {
  AnswerLost,
  ApiError,
  Client,
  isError,
  isFinal,
  modelText,
  NotConnected,
  UnexpectedAnswer,
  type ClientOptions,
  type Outcome,
} from "../src/index.js";
import { answer, drip, outcome, raw, silence, withGateway, type Request, type Script } from "./fixture.js";

const key = "sk-test-Vq7RkX2mPz9LcT4nBw6";
const TOOLS = [{ type: "function", function: { name: "lookup_order" } }];
const NO_OBJECT = "The arguments do not fit the tool: they are no JSON object.";

/** One call that is answered so. */
async function one(script: Script, options: ClientOptions = {}): Promise<Outcome> {
  let result: Outcome | undefined;
  await withGateway([script], async (url) => {
    result = await new Client({ url, key, ...options }).call("lookup_order", { n: 1 });
  });
  assert(result);
  return result;
}

/** One call that fails: its error, and how many requests came. */
async function broken(script: Script, options: ClientOptions = {}): Promise<[unknown, readonly Request[]]> {
  let caught: unknown;
  const requests = await withGateway([script], async (url) => {
    await new Client({ url, key, ...options }).call("lookup_order", { n: 1 }).catch((error) => (caught = error));
  });
  assert(caught, "the call fails");
  return [caught, requests];
}

test("a call is sent as the contract has it", async () => {
  const [request] = await withGateway([answer(200, outcome())], (url) =>
    new Client({ url: `${url}/behind/`, key, deadlineMs: 7000 }).call(
      "lookup_order",
      { n: 1 },
      { run_id: "run_1", step: "3", end_user: { id: "eu_1" }, model_call_id: undefined },
    ),
  );
  assert(request);
  assert.equal(request.line, "POST /behind/v1/calls HTTP/1.1");
  assert.equal(request.headers["authorization"], `Bearer ${key}`);
  assert.equal(request.headers["content-type"], "application/json");
  const { call_id, ...body } = JSON.parse(request.body);
  assert.match(call_id, /^call_[A-Za-z0-9]{16}$/);
  const fields = { run_id: "run_1", step: "3", end_user: { id: "eu_1" }, deadline_ms: 7000 };
  assert.deepEqual(body, { tool: "lookup_order", arguments: { n: 1 }, ...fields });
});

test("the model's text is passed on as it is", async () => {
  const text = '{ "n": 1e2, "id": 12345678901234567890, "name": "Zoë" }';
  const [request] = await withGateway([answer(200, outcome())], (url) => new Client({ url, key }).call("x", text));
  assert(request?.body.includes(`"arguments":${text},`), request?.body);
});

test("text that is no object is an outcome and is not sent", async () => {
  const client = new Client({ url: "http://127.0.0.1:1", key, connectAttempts: 1 });
  for (const text of ["", "[]", "null", "{", '{"a": NaN}']) {
    const refused = await client.call("lookup_order", text);
    assert(refused.status === "refused");
    assert.deepEqual([refused.error.code, refused.error.outcome], ["invalid_arguments", "not_sent"]);
    assert.deepEqual([modelText(refused), isError(refused)], [NO_OBJECT, true]);
  }
});

test("arguments that the gateway cannot read are an outcome", async () => {
  const error = { code: "bad_request", message: "the key at `/a` stands twice", request_id: "req_1" };
  for (const field of ["/arguments/a", "/arguments"]) {
    const refused = await one(answer(400, { error: { ...error, field } }));
    assert.equal(refused.status, "refused");
    assert.match(modelText(refused), /stands twice/);
  }
  const [caught] = await broken(answer(400, { error: { ...error, field: "/step" } }));
  assert(caught instanceof ApiError);
});

test("each state has its type", async () => {
  const done = await one(answer(200, outcome()));
  assert(done.status === "succeeded");
  assert.deepEqual([done.result, modelText(done), isError(done), isFinal(done)], [{ n: 100 }, '{"n":1e2}', false, true]);
  const failed = await one(answer(200, outcome("failed")));
  assert(failed.status === "failed");
  assert.deepEqual([failed.error.detail, isError(failed), isFinal(failed)], ["first_byte", true, true]);
  const waiting = await one(answer(202, outcome("waiting_approval"), { location: "/v1/calls/call_8f2c" }));
  assert(waiting.status === "waiting_approval");
  assert.deepEqual([waiting.approval?.["id"], isError(waiting), isFinal(waiting)], ["ap_1", false, false]);
  const running = await one(answer(202, outcome("running")));
  assert(running.status === "running");
  assert.deepEqual([modelText(running), isFinal(running)], ["The call is still running.", false]);
});

test("an error of the API is typed", async () => {
  const error = { code: "draining", message: "later", field: null, request_id: "req_1" };
  const [found] = await broken(answer(503, { error }, { "retry-after": "2" }));
  assert(found instanceof ApiError);
  assert.deepEqual([found.name, found.status, found.code, found.detail], ["ApiError", 503, "draining", "later"]);
  assert.deepEqual([found.field, found.requestId, found.retryAfterMs], [null, "req_1", 2000]);
});

test("nothing is sent again", async () => {
  for (const script of [raw(""), raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")]) {
    const [caught, requests] = await broken(script);
    assert(caught instanceof AnswerLost, String(caught));
    assert.match(String(caught.callId), /^call_/);
    assert.equal(requests.length, 1);
  }
});

test("after a gateway that broke nobody knows", async () => {
  const error = { code: "internal", message: "it broke", field: null, request_id: "req_1" };
  const [caught] = await broken(answer(500, { error }));
  assert(caught instanceof AnswerLost && !(caught instanceof ApiError), String(caught));
  assert.match(String(caught.callId), /^call_/);
  assert.match(caught.message, /req_1/);
});

test("a gateway that says nothing or drips is left in time", async () => {
  for (const script of [silence, drip]) {
    await withGateway([script], async (url) => {
      const began = performance.now();
      await assert.rejects(new Client({ url, key, timeoutMs: 300 }).tools("openai"), AnswerLost);
      assert(performance.now() - began < 3000);
    });
  }
});

test("answers of others are told apart", async () => {
  for (const script of [
    answer(200, "<html>"),
    answer(200, []),
    answer(200, outcome("dreaming")),
    answer(200, outcome("succeeded", { model: {} })),
    answer(302, "", { location: "http://127.0.0.1:1/" }),
    answer(502, "<html>"),
    answer(500, { error: "no" }),
    answer(504, { error: { code: 504, message: "of a proxy in between" } }),
    answer(200, "[".repeat(100_000)),
  ]) {
    const [caught, requests] = await broken(script);
    assert(caught instanceof UnexpectedAnswer, String(caught));
    assert.equal(requests.length, 1);
  }
});

test("an answer is bounded", async () => {
  const [caught] = await broken(answer(200, outcome("succeeded", { padding: "x".repeat(5000) })), {
    maxAnswerBytes: 4096,
  });
  assert(caught instanceof UnexpectedAnswer);
  await one(answer(200, outcome("succeeded", { padding: "x".repeat(3000) })), { maxAnswerBytes: 4096 });
});

test("a connection that cannot be made is tried again", async () => {
  // No port: somebody else could get one that was free meanwhile.
  const folder = await mkdtemp(join(tmpdir(), "sortie-"));
  const client = new Client({ url: `unix://${folder}/nobody.sock`, connectAttempts: 3 });
  const began = performance.now();
  await assert.rejects(client.call("lookup_order", {}), NotConnected);
  // Two waits, of 0.1 s and 0.2 s at least.
  assert(performance.now() - began > 250);
  await rm(folder, { recursive: true });
});

test("a Unix socket is spoken to", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sortie-"));
  const call = (url: string): Promise<Outcome> => new Client({ url }).call("lookup_order", {});
  const [request] = await withGateway([answer(200, outcome())], call, join(folder, "api.sock"));
  await rm(folder, { recursive: true });
  assert.equal(request?.headers["host"], "localhost");
  assert.equal(request?.headers["authorization"], undefined);
});

test("a key that is no key is refused before anything is sent", () => {
  for (const bad of ["", " ", "sk\n", "sk\r\nX-A: b", "schlüssel"]) {
    assert.throws(() => new Client({ key: bad }), TypeError);
  }
  for (const url of ["", "127.0.0.1:8477", "ftp://a", "http://", "http://a:b@c", "http://a?b=c"]) {
    assert.throws(() => new Client({ url }), TypeError);
  }
  for (const bound of [0, -1, NaN, Infinity]) {
    assert.throws(() => new Client({ connectTimeoutMs: bound }), TypeError);
  }
});

test("a list is sent once while it stays the same", async () => {
  const changed = [...TOOLS, ...TOOLS];
  const scripts = [
    answer(200, TOOLS, { ETag: '"a"' }),
    answer(304, ""),
    answer(200, changed, { etag: '"b"' }),
    answer(304, ""),
    answer(200, TOOLS, { etag: '"c"' }),
  ];
  const requests = await withGateway(scripts, async (url) => {
    const client = new Client({ url, key });
    (await client.tools("openai")).pop();
    assert.deepEqual(await client.tools("openai"), TOOLS);
    assert.deepEqual(await client.tools("openai"), changed);
    assert.deepEqual(await client.tools("openai"), changed);
    await client.tools("openai", { agent: "support/2" });
  });
  const asked = requests.map((request) => request.headers["if-none-match"]);
  assert.deepEqual(asked, [undefined, '"a"', '"a"', '"b"', undefined]);
  assert.equal(requests[0]?.line, "GET /v1/tools?format=openai HTTP/1.1");
  assert.equal(requests[4]?.line, "GET /v1/agents/support%2F2/tools?format=openai HTTP/1.1");
});

test("another shape is no list", async () => {
  await withGateway([answer(200, { tools: [] }), answer(304, "")], async (url) => {
    const client = new Client({ url, key });
    await assert.rejects(client.tools("openai"), UnexpectedAnswer);
    await assert.rejects(client.tools("openai"), UnexpectedAnswer);
  });
});

test("waiting asks until the call is final", async () => {
  const states = ["waiting_approval", "running", "succeeded"].map((status) => answer(200, outcome(status)));
  const requests = await withGateway(states, async (url) => {
    const final = await new Client({ url, key }).wait("call_8f2c", { timeoutMs: 90_000 });
    assert.equal(final.status, "succeeded");
  });
  assert.equal(requests[0]?.line, "GET /v1/calls/call_8f2c?wait_ms=60000 HTTP/1.1");
  assert.equal(requests.length, 3);
});

test("after its time the state is what it is", async () => {
  const running = answer(202, outcome("running"));
  await withGateway([running, running], async (url) => {
    const client = new Client({ url, key });
    const state = await client.call("lookup_order", {});
    assert.equal((await client.wait(state, { timeoutMs: 0 })).status, "running");
  });
});

test("a call that nobody knows is an error", async () => {
  const error = { code: "not_found", message: "no", field: null, request_id: "req_1" };
  await withGateway([answer(404, { error })], (url) =>
    assert.rejects(new Client({ url, key }).wait("call_8f2c", { timeoutMs: 1000 }), ApiError),
  );
});
