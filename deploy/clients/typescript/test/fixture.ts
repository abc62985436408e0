// A gateway of one's own: each connection gets the next scripted answer, and its request is kept.

import { createServer, type Server, type Socket } from "node:net";
import type { AddressInfo } from "node:net";

export interface Request {
  readonly line: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export type Script = (socket: Socket) => void;

/** A whole answer; a text is sent as it is. */
export function answer(status: number, body: unknown, headers: Record<string, string> = {}): Script {
  const content = typeof body === "string" ? body : JSON.stringify(body);
  const lines = [`HTTP/1.1 ${status} Scripted`, `content-length: ${Buffer.byteLength(content)}`];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  return raw(`${lines.join("\r\n")}\r\n\r\n${content}`);
}

export function raw(data: string): Script {
  return (socket) => socket.end(data);
}

/** Answers nothing until the client hangs up. */
export const silence: Script = () => {};

/** One byte of a head that never ends, as often as it can be taken, until the client hangs up. */
export const drip: Script = (socket) => {
  socket.write("HTTP/1.1 200 OK\r\nx: ");
  const timer = setInterval(() => socket.write("x"), 20);
  socket.once("close", () => clearInterval(timer));
};

/** Runs `use` with a gateway that follows the scripts; gives the requests that came. */
export async function withGateway(
  scripts: readonly Script[],
  use: (url: string) => Promise<unknown>,
  unix?: string,
): Promise<Request[]> {
  const requests: Request[] = [];
  const left = [...scripts];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk.toString();
      const request = read(text);
      if (!request) return;
      requests.push(request);
      text = "";
      (left.shift() ?? raw(""))(socket);
    });
  });
  const url = await listen(server, unix);
  try {
    await use(url);
  } finally {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  }
  return requests;
}

function listen(server: Server, unix: string | undefined): Promise<string> {
  return new Promise((resolve) => {
    if (unix !== undefined) server.listen(unix, () => resolve(`unix://${unix}`));
    else server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  });
}

function read(text: string): Request | undefined {
  const end = text.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const [line = "", ...fields] = text.slice(0, end).split("\r\n");
  const headers: Record<string, string> = {};
  for (const field of fields) {
    const at = field.indexOf(":");
    headers[field.slice(0, at).toLowerCase()] = field.slice(at + 1).trim();
  }
  const body = text.slice(end + 4);
  if (Buffer.byteLength(body) < Number(headers["content-length"] ?? 0)) return undefined;
  return { line, headers, body };
}

/** An outcome of the gateway. */
export function outcome(status = "succeeded", fields: object = {}): object {
  const failed = status === "failed" || status === "refused";
  const message = "The tool did not answer within 10 s.";
  const error = {
    code: "timeout",
    detail: "first_byte",
    message,
    outcome: "unknown",
    status: null,
    retryable: false,
    retry_after_ms: null,
    details: [],
  };
  const text = status === "running" ? null : failed ? message : '{"n":1e2}';
  return {
    id: "call_8f2c",
    status,
    tool: "lookup_order",
    approval: status === "waiting_approval" ? { id: "ap_1", status: "pending" } : null,
    result: status === "succeeded" ? { n: 1e2 } : null,
    truncated: false,
    error: failed ? error : null,
    model: { text, is_error: failed, reply_stands: false },
    a_field_of_a_later_version: {},
    ...fields,
  };
}
