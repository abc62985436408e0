// What can go wrong between this program and the gateway.

/** Every exception of this package. */
export class SortieError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The connection to the gateway could not be made. Nothing was sent. */
export class NotConnected extends SortieError {}

/**
 * The request went out and no whole answer came back, or the gateway broke: the call may have taken effect.
 * `callId` names the call in the gateway's log; it is undefined where the request was no call.
 */
export class AnswerLost extends SortieError {
  constructor(
    message: string,
    readonly callId: string | undefined,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The answer is none of a Sortie gateway: no JSON, too long, another shape. The call may have taken effect. */
export class UnexpectedAnswer extends AnswerLost {}

/** The gateway did not take the request: its key, its body, its path. No tool was called. */
export class ApiError extends SortieError {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    /** A JSON pointer into the body. */
    readonly field: string | null,
    readonly requestId: string | null,
    /** Where the gateway named a time. */
    readonly retryAfterMs: number | null,
  ) {
    super(`${code}: ${detail}${field ? ` (${field})` : ""}`);
  }
}
