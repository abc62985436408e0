// A turn of the OpenAI chat completions API: the calls of the model's message become messages of role `tool`.

import { modelText, type Client } from "../src/index.js";

interface Message {
  tool_calls?: { id: string; function: { name: string; arguments: string } }[];
}

/** `message` is `completion.choices[0].message`; what is given back goes after it into `messages`. */
export async function answer(client: Client, message: Message, run_id: string, step: string) {
  const replies = (message.tool_calls ?? []).map(async (call, call_index) => {
    // The arguments are the model's text, as it is.
    const fields = { run_id, step, call_index, model_call_id: call.id };
    const outcome = await client.call(call.function.name, call.function.arguments, fields);
    return { role: "tool" as const, tool_call_id: call.id, content: modelText(outcome) };
  });
  return Promise.all(replies);
}
