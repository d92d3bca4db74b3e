import type { components } from "./api.js";

type ErrorBody = components["schemas"]["Error"];

/** A response other than 2xx. Branch on `code`: several codes share a status. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  /** Null if the response came from something in between, such as a proxy. */
  readonly code: ErrorBody["error"]["code"] | null;
  /** What is wrong with the request; may be empty. */
  readonly details: ErrorBody["error"]["details"];
  /** Identifies the request in the service's logs: quote it when you contact support. */
  readonly requestId: string | null;

  /** @param body the response body: parsed if it is JSON, else its text. */
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
