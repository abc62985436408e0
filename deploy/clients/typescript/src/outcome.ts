// The outcome of a call, as the gateway writes it: `status` tells the states apart.

/** Why a call has no result. */
export interface CallError {
  readonly code: string;
  readonly detail: string | null;
  readonly message: string;
  /** What may have happened at the tool. */
  readonly outcome: "not_sent" | "answered" | "unknown";
  readonly status: number | null;
  /** Making the same call again is safe and may help. */
  readonly retryable: boolean;
  readonly retry_after_ms: number | null;
  readonly details: readonly { pointer: string; keyword: string; message: string }[];
}

interface Call {
  readonly id: string;
  readonly tool: string;
  readonly model: { readonly text: string; readonly is_error: boolean; readonly reply_stands: boolean };
}

/** `result` is the tool's JSON. A text, and JSON that was cut, are strings; `model.text` has numbers as they came. */
export interface Succeeded extends Call {
  readonly status: "succeeded";
  readonly result: unknown;
  readonly truncated: boolean;
  readonly error: null;
}

/** It was tried and did not work. */
export interface Failed extends Call {
  readonly status: "failed";
  readonly error: CallError;
}

/** Nothing left the gateway. */
export interface Refused extends Call {
  readonly status: "refused";
  readonly error: CallError;
}

/** A person decides: hand the text to the model, and ask for the call again later. */
export interface WaitingApproval extends Call {
  readonly status: "waiting_approval";
  readonly approval: Readonly<Record<string, unknown>> | null;
  readonly error: null;
}

/** It was sent and has not ended yet. */
export interface Running extends Call {
  readonly status: "running";
  readonly error: null;
}

export type Outcome = Succeeded | Failed | Refused | WaitingApproval | Running;

/** What the model reads: the result, or one plain sentence. */
export function modelText(outcome: Outcome): string {
  return outcome.model.text;
}

/** For the error flag of a provider's tool result. */
export function isError(outcome: Outcome): boolean {
  return outcome.model.is_error;
}

/** Whether nothing about it will change. */
export function isFinal(outcome: Outcome): outcome is Succeeded | Failed | Refused {
  return outcome.status !== "waiting_approval" && outcome.status !== "running";
}

/** The outcome that a JSON value is; undefined where it is none. Fields that are not known are left alone. */
export function readOutcome(value: unknown): Outcome | undefined {
  if (!isRecord(value) || typeof value["id"] !== "string" || typeof value["tool"] !== "string") return undefined;
  const status = value["status"];
  const said = isRecord(value["model"]) ? value["model"] : {};
  const text = said["text"] ?? (status === "running" ? "The call is still running." : undefined);
  if (typeof text !== "string") return undefined;
  const model = { text, is_error: said["is_error"] === true, reply_stands: said["reply_stands"] === true };
  const error = value["error"];
  const hasError = isRecord(error) && typeof error["code"] === "string" && typeof error["outcome"] === "string";
  switch (status) {
    case "failed":
    case "refused":
      return hasError ? ({ ...value, model } as unknown as Outcome) : undefined;
    case "succeeded":
      return "result" in value ? ({ ...value, model } as unknown as Outcome) : undefined;
    case "waiting_approval":
    case "running":
      return { ...value, model } as unknown as Outcome;
    default:
      return undefined;
  }
}

/** What the gateway would say of arguments that it cannot even read. */
export function refusedArguments(id: string, tool: string, problem: string): Refused {
  const text = `The arguments do not fit the tool: ${problem}.`;
  const error: CallError = {
    code: "invalid_arguments",
    detail: null,
    message: text,
    outcome: "not_sent",
    status: null,
    retryable: false,
    retry_after_ms: null,
    details: [],
  };
  return { id, tool, status: "refused", error, model: { text, is_error: true, reply_stands: false } };
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
