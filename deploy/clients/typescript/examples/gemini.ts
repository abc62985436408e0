// A turn of the Gemini API: `functionCall` parts become `functionResponse` parts of one user content.

import { isError, modelText, type Client } from "../src/index.js";

interface Part {
  functionCall?: { id?: string; name: string; args?: object };
}

/** `content` is `candidates[0].content`; what is given back goes after it into `contents`. */
export async function answer(client: Client, content: { parts: readonly Part[] }, run_id: string, step: string) {
  const calls = content.parts.flatMap((part) => part.functionCall ?? []);
  const parts = calls.map(async ({ id, name, args }, call_index) => {
    const outcome = await client.call(name, args ?? {}, { run_id, step, call_index, model_call_id: id });
    const response = { [isError(outcome) ? "error" : "output"]: modelText(outcome) };
    return { functionResponse: { ...(id === undefined ? {} : { id }), name, response } };
  });
  return { role: "user" as const, parts: await Promise.all(parts) };
}
