// The client: list, call, wait.

import { randomInt } from "node:crypto";
import type { SecureContextOptions } from "node:tls";
import { AnswerLost, ApiError, UnexpectedAnswer } from "./errors.js";
import { isFinal, isRecord, readOutcome, refusedArguments, type Outcome } from "./outcome.js";
import { pause, Transport, type Answer } from "./transport.js";

type Schema = Record<string, unknown>;

/** The list of tools as each provider's API takes it. */
export interface Tools {
  openai: { type: "function"; function: { name: string; description: string; parameters: Schema } }[];
  anthropic: { name: string; description: string; input_schema: Schema & { type: "object" } }[];
  gemini: { functionDeclarations: { name: string; description: string; parameters?: Schema }[] };
  mcp: {
    tools: { name: string; description: string; inputSchema: Schema & { type: "object" }; annotations?: Schema }[];
  };
}

export type Format = keyof Tools;

export interface ClientOptions {
  /** `http://HOST:PORT`, `https://HOST` or `unix:///PATH`; http://127.0.0.1:8477 by default. */
  url?: string | undefined;
  key?: string | undefined;
  /** Bounds each call that names no other; 120,000 by default. */
  deadlineMs?: number | undefined;
  /** Bounds every other request; 10,000 by default. */
  timeoutMs?: number | undefined;
  connectTimeoutMs?: number | undefined;
  connectAttempts?: number | undefined;
  maxAnswerBytes?: number | undefined;
  /** For https: an authority of your own (`ca`), a client certificate (`cert`, `key`). */
  tls?: Pick<SecureContextOptions, "ca" | "cert" | "key"> | undefined;
}

/** The fields of a call beside the tool and its arguments, under the API's own names. */
export interface CallFields {
  run_id?: string | undefined;
  step?: string | undefined;
  call_index?: number | undefined;
  agent_id?: string | undefined;
  session_id?: string | undefined;
  turn_id?: string | undefined;
  turn_index?: number | undefined;
  round?: number | undefined;
  end_user?: { id?: string; external_id?: string } | undefined;
  model_call_id?: string | undefined;
  call_id?: string | undefined;
  credentials?: Readonly<Record<string, string>> | undefined;
  deadline_ms?: number | undefined;
  wait_ms?: number | undefined;
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const KEPT_LISTS = 64;
const LONGEST_POLL_MS = 60_000;
/** What an answer may take on its way, beyond what the gateway was given. */
const MARGIN_MS = 5_000;
const NO_OBJECT = "they are no JSON object";

/** A gateway and a key. It keeps nothing but lists of tools. */
export class Client {
  readonly #transport: Transport;
  readonly #headers: Record<string, string>;
  readonly #deadlineMs: number;
  readonly #timeoutMs: number;
  readonly #lists = new Map<string, { etag: string; body: string }>();

  constructor(options: ClientOptions = {}) {
    const { key } = options;
    if (key !== undefined && !/^[!-~]+$/.test(key)) {
      throw new TypeError("the key is empty, or has a character that no header takes");
    }
    const bounds = {
      connectTimeoutMs: options.connectTimeoutMs ?? 3_000,
      connectAttempts: options.connectAttempts ?? 3,
      maxAnswerBytes: options.maxAnswerBytes ?? 8 * 1024 * 1024,
    };
    this.#transport = new Transport(options.url ?? "http://127.0.0.1:8477", bounds, options.tls ?? {});
    this.#headers = {
      Accept: "application/json",
      "User-Agent": "sortie-client-typescript/0.1",
      ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }),
    };
    this.#deadlineMs = options.deadlineMs ?? 120_000;
    this.#timeoutMs = options.timeoutMs ?? 10_000;
  }

  /**
   * The tools in a provider's format, to hand to its API as they are; with `agent` those of that agent.
   * The gateway is asked every time, and sends the list only where it changed.
   */
  async tools<F extends Format>(format: F, { agent }: { agent?: string | undefined } = {}): Promise<Tools[F]> {
    const of = agent === undefined ? "" : `/agents/${encodeURIComponent(agent)}`;
    const path = `/v1${of}/tools?format=${encodeURIComponent(format)}`;
    const kept = this.#lists.get(path);
    const headers = { ...this.#headers, ...(kept ? { "If-None-Match": kept.etag } : {}) };
    const answer = await this.#transport.send({ method: "GET", path, headers, timeoutMs: this.#timeoutMs });
    let body: string;
    if (answer.status === 304 && kept) {
      body = kept.body;
    } else {
      body = expect(answer, [200], undefined).body;
      this.#keep(path, answer.headers.etag, body);
    }
    const list = parse(body, undefined);
    const fits = format === "gemini" || format === "mcp" ? isRecord(list) : Array.isArray(list);
    if (!fits) throw new UnexpectedAnswer(`no list of tools in the format ${format}`, undefined);
    return list as Tools[F];
  }

  /**
   * Calls a tool by its name or by the name that a list gave the model.
   *
   * `args` may be the model's own JSON text: it is passed on as it is, numbers included. Arguments that are no JSON object
   * are an outcome too (`invalid_arguments`), so that the model can correct itself.
   *
   * `run_id`, `step` and `call_index` say which call of a run this is: give the same ones when you make the same call again,
   * and others for every other call.
   */
  async call(tool: string, args: object | string, fields: CallFields = {}): Promise<Outcome> {
    const callId = fields.call_id ?? newCallId();
    const deadlineMs = fields.deadline_ms ?? this.#deadlineMs;
    if (typeof args === "string" && !isObject(args)) return refusedArguments(callId, tool, NO_OBJECT);
    const text = typeof args === "string" ? args : JSON.stringify(args);
    const rest = JSON.stringify({ ...fields, call_id: callId, deadline_ms: deadlineMs });
    const body = `{"tool":${JSON.stringify(tool)},"arguments":${text},${rest.slice(1)}`;
    const headers = { ...this.#headers, "Content-Type": "application/json" };
    const timeoutMs = deadlineMs + MARGIN_MS;
    const answer = await this.#transport.send({ method: "POST", path: "/v1/calls", headers, body, timeoutMs, callId });
    try {
      return outcomeOf(answer, callId);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 400) throw error;
      // A key that stands twice, too deep a nesting: the model wrote it and can write it better.
      if (`${error.field}/`.startsWith("/arguments/")) return refusedArguments(callId, tool, error.detail);
      // The rest of the body is ours, and is JSON.
      if (error.field === "" && typeof args === "string") return refusedArguments(callId, tool, NO_OBJECT);
      throw error;
    }
  }

  /**
   * Waits for a call that is running or waits for a person, by outcome or id.
   * Gives its final outcome, or after `timeoutMs` the state that it then has.
   */
  async wait(call: Outcome | string, { timeoutMs }: { timeoutMs: number }): Promise<Outcome> {
    const callId = typeof call === "string" ? call : call.id;
    const end = performance.now() + timeoutMs;
    for (;;) {
      const asked = performance.now();
      const waitMs = Math.max(0, Math.min(LONGEST_POLL_MS, Math.floor(end - asked)));
      const path = `/v1/calls/${encodeURIComponent(callId)}?wait_ms=${waitMs}`;
      const bound = waitMs + MARGIN_MS;
      const answer = await this.#transport.send({ method: "GET", path, headers: this.#headers, timeoutMs: bound, callId });
      const outcome = outcomeOf(answer, callId);
      const now = performance.now();
      if (isFinal(outcome) || now >= end) return outcome;
      // A gateway that answers at once is not asked again at once.
      await pause(Math.max(0, Math.min(end, asked + 1_000) - now));
    }
  }

  #keep(path: string, etag: string | undefined, body: string): void {
    this.#lists.delete(path);
    if (etag === undefined) return;
    for (const oldest of this.#lists.keys()) {
      if (this.#lists.size < KEPT_LISTS) break;
      this.#lists.delete(oldest);
    }
    this.#lists.set(path, { etag, body });
  }
}

function newCallId(): string {
  return `call_${Array.from({ length: 16 }, () => LETTERS[randomInt(LETTERS.length)]).join("")}`;
}

function isObject(text: string): boolean {
  try {
    return isRecord(JSON.parse(text));
  } catch {
    return false;
  }
}

function outcomeOf(answer: Answer, callId: string): Outcome {
  const outcome = readOutcome(parse(expect(answer, [200, 202], callId).body, callId));
  if (!outcome) throw new UnexpectedAnswer("the answer is no outcome", callId);
  return outcome;
}

function parse(body: string, callId: string | undefined): unknown {
  try {
    return JSON.parse(body);
  } catch (cause) {
    throw new UnexpectedAnswer("the answer is no JSON", callId, { cause });
  }
}

function expect(answer: Answer, statuses: readonly number[], callId: string | undefined): Answer {
  if (statuses.includes(answer.status)) return answer;
  const error = errorOf(answer.body);
  if (!error || typeof error["code"] !== "string" || typeof error["message"] !== "string") {
    throw new UnexpectedAnswer(`status ${answer.status}, which is no answer of a Sortie gateway`, callId);
  }
  const text = (name: string): string | null => (typeof error[name] === "string" ? (error[name] as string) : null);
  if (answer.status === 500) {
    // It took the request, and broke somewhere on the way.
    const what = `${error["code"]}: ${error["message"]} (${text("request_id")})`;
    throw new AnswerLost(`the gateway broke: ${what}`, callId);
  }
  const after = answer.headers["retry-after"] ?? "";
  const retryAfterMs = /^[0-9]{1,6}$/.test(after) ? Number(after) * 1000 : null;
  throw new ApiError(answer.status, error["code"], error["message"], text("field"), text("request_id"), retryAfterMs);
}

function errorOf(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return isRecord(value) && isRecord(value["error"]) ? value["error"] : undefined;
  } catch {
    return undefined;
  }
}
