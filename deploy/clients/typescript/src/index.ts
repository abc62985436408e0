// Calls tools through a Sortie gateway: list them in a provider's format, call, wait.
//
// A failing tool is not an exception: `call` gives an outcome, and `modelText` and `isError` say what the model reads.
// Exceptions speak of the request to the gateway.

export { Client } from "./client.js";
export type { CallFields, ClientOptions, Format, Tools } from "./client.js";
export { AnswerLost, ApiError, NotConnected, SortieError, UnexpectedAnswer } from "./errors.js";
export { isError, isFinal, modelText } from "./outcome.js";
export type {
  CallError,
  Failed,
  Outcome,
  Refused,
  Running,
  Succeeded,
  WaitingApproval,
} from "./outcome.js";
