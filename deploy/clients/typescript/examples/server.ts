// The server of lookup_order: it verifies the signature, and checks the arguments by the definition's own schema.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { lookupOrder } from "./lookup-order.js";
import { verify } from "./verify.js";

const server = createServer(async (request, response) => {
  try {
    const body = await buffer(request);
    const signature = String(request.headers["x-tool-signature"] ?? "");
    if (!verify(process.env["TOOL_SECRET"] ?? "", signature, body)) return response.writeHead(401).end();
    const order = lookupOrder.parse(JSON.parse(body.toString()).arguments);
    const answer = JSON.stringify({ order: order.order_number, status: "shipped" });
    return response.setHeader("Content-Type", "application/json").end(answer);
  } catch {
    return response.writeHead(400).end();
  }
});
server.listen(Number(process.env["PORT"] ?? 8700), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/tools/lookup-order`);
});
