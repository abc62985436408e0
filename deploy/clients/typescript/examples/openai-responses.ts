// A turn of the OpenAI responses API: items of type `function_call` become items of type `function_call_output`.

import { modelText, type Client } from "../src/index.js";

interface FunctionCall {
  type: "function_call";
  call_id: string;
  name: string;
  arguments: string;
}

/**
 * The responses API wants a function's fields beside its type, and not within `function`.
 * It makes a function strict unless it is told otherwise, and strict takes only a part of JSON Schema.
 */
export async function tools(client: Client) {
  const list = await client.tools("openai");
  return list.map((tool) => ({ type: "function" as const, strict: false, ...tool.function }));
}

/** `output` is `response.output`; what is given back is the next request's `input`. */
export async function answer(client: Client, output: readonly { type: string }[], run_id: string, step: string) {
  const calls = output.filter((item): item is FunctionCall => item.type === "function_call");
  const items = calls.map(async (call, call_index) => {
    // The arguments are the model's text, as it is.
    const fields = { run_id, step, call_index, model_call_id: call.call_id };
    const outcome = await client.call(call.name, call.arguments, fields);
    return { type: "function_call_output" as const, call_id: call.call_id, output: modelText(outcome) };
  });
  return Promise.all(items);
}
