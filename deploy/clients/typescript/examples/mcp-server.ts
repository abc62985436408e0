// Two methods of an MCP server: `tools/list` and `tools/call`, answered by the gateway.

import { isError, modelText, type Client } from "../src/index.js";

interface Request {
  id: string | number;
  method: string;
  params?: { name?: string; arguments?: object };
}

/** `request` is a JSON-RPC request; what is given back is its response. */
export async function handle(client: Client, request: Request, run_id: string, step: string) {
  const { id, method, params } = request;
  if (method === "tools/list") return { jsonrpc: "2.0" as const, id, result: await client.tools("mcp") };
  const outcome = await client.call(params?.name ?? "", params?.arguments ?? {}, { run_id, step });
  const content = [{ type: "text" as const, text: modelText(outcome) }];
  return { jsonrpc: "2.0" as const, id, result: { content, isError: isError(outcome) } };
}
