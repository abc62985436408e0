// One HTTP request on one connection, bounded in time and size.
//
// No connection is kept. One that the gateway closed in between would leave a request that was sent without an answer, and
// nobody could tell whether to send it again.

import http from "node:http";
import https from "node:https";
import type { SecureContextOptions } from "node:tls";
import { AnswerLost, NotConnected, UnexpectedAnswer } from "./errors.js";

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

export interface Bounds {
  readonly connectTimeoutMs: number;
  readonly connectAttempts: number;
  readonly maxAnswerBytes: number;
}

export interface Request {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly timeoutMs: number;
  readonly callId?: string;
}

/** A timer that is longer fires at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Where the gateway is, and the bounds of every request. */
export class Transport {
  readonly #tls: boolean;
  readonly #place: http.RequestOptions & SecureContextOptions;
  readonly #prefix: string;
  readonly #bounds: Bounds;

  constructor(url: string, bounds: Bounds, tls: SecureContextOptions) {
    const parts = new URL(url);
    const extra = parts.username || parts.password || parts.search || parts.hash;
    if (!["http:", "https:", "unix:"].includes(parts.protocol) || extra) {
      throw new TypeError(`not the URL of a gateway (http, https or unix): ${parts.protocol}//${parts.host}`);
    }
    for (const bound of Object.values(bounds)) {
      if (!(bound > 0 && bound <= LONGEST_TIMER_MS)) throw new TypeError(`a bound is not from 1 to ${LONGEST_TIMER_MS}`);
    }
    this.#bounds = bounds;
    this.#tls = parts.protocol === "https:";
    if (parts.protocol === "unix:") {
      this.#place = { socketPath: decodeURIComponent(parts.pathname), host: "localhost" };
      this.#prefix = "";
    } else {
      // An IPv6 address stands in brackets in a URL alone.
      this.#place = { host: parts.hostname.replace(/^\[|\]$/g, ""), port: parts.port, ...(this.#tls ? tls : {}) };
      this.#prefix = parts.pathname.replace(/\/+$/, "");
    }
  }

  /** Sends one request. The one retry rule: only where the connection could not be made. */
  async send(request: Request): Promise<Answer> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#once(request);
      } catch (error) {
        if (!(error instanceof NotConnected) || attempt >= this.#bounds.connectAttempts) throw error;
        await pause(Math.min(1000, 100 * 2 ** attempt) * (0.5 + Math.random() / 2));
      }
    }
  }

  #once({ method, path, headers, body, timeoutMs, callId }: Request): Promise<Answer> {
    const { connectTimeoutMs, maxAnswerBytes } = this.#bounds;
    return new Promise((resolve, reject) => {
      const sent = (this.#tls ? https : http).request({
        ...this.#place,
        method,
        path: this.#prefix + path,
        headers: { ...headers, ...(body === undefined ? {} : { "Content-Length": Buffer.byteLength(body) }) },
        agent: false,
      });
      let connected = false;
      let timer = setTimeout(() => sent.destroy(new Error("no connection in time")), connectTimeoutMs);
      const fail = (error: Error): void => {
        clearTimeout(timer);
        const options = { cause: error };
        if (error instanceof AnswerLost) reject(error);
        else if (connected) reject(new AnswerLost(`no whole answer from the gateway: ${error.message}`, callId, options));
        else reject(new NotConnected(`cannot connect to the gateway: ${error.message}`, options));
        sent.destroy();
      };
      sent.once("socket", (socket) => {
        socket.once(this.#tls ? "secureConnect" : "connect", () => {
          connected = true;
          clearTimeout(timer);
          const ms = Math.min(timeoutMs, LONGEST_TIMER_MS);
          timer = setTimeout(() => sent.destroy(new Error("no answer in time")), ms);
          // Only now, so that nothing can be on its way while the connection may still fail.
          sent.end(body);
        });
      });
      sent.on("error", fail);
      sent.once("response", (response) => {
        const chunks: Buffer[] = [];
        let size = 0;
        response.on("data", (chunk: Buffer) => {
          size += chunk.length;
          if (size > maxAnswerBytes) {
            fail(new UnexpectedAnswer(`the answer has more than ${maxAnswerBytes} bytes`, callId));
          } else {
            chunks.push(chunk);
          }
        });
        response.on("error", fail);
        response.once("end", () => {
          clearTimeout(timer);
          const text = Buffer.concat(chunks).toString();
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text });
          sent.destroy();
        });
      });
    });
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
