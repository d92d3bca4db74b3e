import type { components } from "./api.js";

type ErrorBody = components["schemas"]["Error"];

/** An answer other than 2xx. Branch on `code`: several codes share a status. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  /** Null when the answer came from something in between, such as a proxy. */
  readonly code: ErrorBody["error"]["code"] | null;
  /** What helps to mend the request; empty when nothing does. */
  readonly details: ErrorBody["error"]["details"];
  /** Finds the request in the logs of the service: quote it when you write to the support. */
  readonly requestId: string | null;

  /** @param body the answer's body: an object if it was JSON, else its text. */
  constructor(response: Response, body: unknown) {
    const error = isErrorBody(body) ? body.error : null;
    super(error ? `${error.code}: ${error.message}` : `HTTP status ${response.status}`);
    this.status = response.status;
    this.code = error?.code ?? null;
    this.details = error?.details ?? {};
    this.requestId = response.headers.get("X-Request-Id");
  }
}

function isErrorBody(body: unknown): body is ErrorBody {
  return typeof (body as ErrorBody | null | undefined)?.error?.code === "string";
}
