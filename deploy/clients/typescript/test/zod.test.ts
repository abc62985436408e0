// What a definition becomes, and what cannot become one.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as z from "zod";
import { lookupOrder } from "../examples/lookup-order.js";
import { defineTool, SchemaError, toolsFile } from "../src/zod.js";

const base = { name: "scan", description: "Scans.", url: "https://scans.example.com/api/scans" };

function parametersOf(input: z.ZodObject, profile?: string): unknown {
  return defineTool({ ...base, input, ...(profile === undefined ? {} : { profile }) }).entry["parameters"];
}

/** The schema is refused, and the message begins so. */
function refused(input: z.ZodObject, begins: string, profile?: string): void {
  assert.throws(
    () => parametersOf(input, profile),
    (error) => error instanceof SchemaError && error.message.startsWith(`scan: ${begins}`),
    begins,
  );
}

test("a definition is an entry of tools", () => {
  const tool = defineTool({
    ...base,
    profile: "bare-v1",
    input: z.object({ id: z.string().regex(/^RX-\d+$/) }),
    settings: { policy: "allow", timeout: "30s" },
  });
  const file = JSON.parse(toolsFile([tool], { owner: "scans" }));
  assert.deepEqual(file, {
    owner: "scans",
    tools: [
      {
        ...base,
        profile: "bare-v1",
        parameters: { type: "object", properties: { id: { type: "string", pattern: "^RX-\\d+$" } }, required: ["id"] },
        policy: "allow",
        timeout: "30s",
      },
    ],
  });
});

test("arguments are checked by the same schema", () => {
  assert.deepEqual(lookupOrder.parse({ order_number: "A-1042" }), { order_number: "A-1042" });
  assert.throws(() => lookupOrder.parse({ order_number: "B-1042" }), z.ZodError);
  assert.throws(() => lookupOrder.parse({}), z.ZodError);
});

test("the subset takes what envelope-v1 takes", () => {
  const input = z.object({
    text: z.string().describe("A text."),
    kind: z.enum(["a", "b"]),
    count: z.int().optional(),
    share: z.number(),
    lines: z.array(z.object({ open: z.boolean() })),
    late: z.string().transform(Number),
  });
  assert.deepEqual(parametersOf(input), {
    type: "object",
    properties: {
      text: { type: "string", description: "A text." },
      kind: { type: "string", enum: ["a", "b"] },
      count: { type: "integer" },
      share: { type: "number" },
      lines: {
        type: "array",
        items: { type: "object", properties: { open: { type: "boolean" } }, required: ["open"] },
      },
      late: { type: "string" },
    },
    required: ["text", "kind", "share", "lines", "late"],
  });
});

test("what the subset does not take is refused with its place", () => {
  refused(z.object({ "a/b": z.string().min(1) }), "/properties/a~1b/minLength: the keyword minLength");
  refused(z.object({ a: z.array(z.int().max(5)) }), "/properties/a/items/maximum: the keyword maximum");
  refused(z.object({ a: z.string().nullable() }), "/properties/a/type: the type");
  refused(z.object({ a: z.literal("x") }), "/properties/a/const: the keyword const");
  refused(z.object({ a: z.enum({ one: 1 }) }), "/properties/a/enum: a value that is no text");
  refused(z.object({ a: z.unknown() }), "/properties/a/type: a value of any type");
  refused(z.strictObject({ a: z.string() }), "/additionalProperties: the keyword additionalProperties");
  refused(z.object({ a: z.string().default("x") }), "/properties/a/default: the keyword default");
  refused(z.object({ a: z.string().min(1) }), "/properties/a/minLength", "envelope-v1");
});

test("another profile takes the whole of JSON Schema", () => {
  const input = z.strictObject({ a: z.string().min(1).nullable() });
  assert.deepEqual(parametersOf(input, "bare-v1"), {
    type: "object",
    properties: { a: { anyOf: [{ type: "string", minLength: 1 }, { type: "null" }] } },
    required: ["a"],
    additionalProperties: false,
  });
});

test("what no JSON Schema can say is refused", () => {
  refused(z.object({ a: z.date() }), "Date cannot be represented", "bare-v1");
  refused(z.object({ a: z.bigint() }), "BigInt cannot be represented", "bare-v1");
  refused(z.object({ a: z.map(z.string(), z.string()) }), "Map cannot be represented");
});
