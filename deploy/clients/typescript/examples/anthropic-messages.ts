// A turn of the Anthropic messages API: `tool_use` blocks become `tool_result` blocks of one user message.

import { isError, modelText, type Client } from "../src/index.js";

interface ToolUse {
  type: "tool_use";
  id: string;
  name: string;
  input: object;
}

/** `message` is the assistant's message; what is given back goes after it into `messages`. */
export async function answer(
  client: Client,
  message: { content: readonly { type: string }[] },
  run_id: string,
  step: string,
) {
  const calls = message.content.filter((block): block is ToolUse => block.type === "tool_use");
  const results = calls.map(async (call, call_index) => {
    const fields = { run_id, step, call_index, model_call_id: call.id };
    const outcome = await client.call(call.name, call.input, fields);
    const [content, is_error] = [modelText(outcome), isError(outcome)];
    return { type: "tool_result" as const, tool_use_id: call.id, content, is_error };
  });
  return { role: "user" as const, content: await Promise.all(results) };
}
