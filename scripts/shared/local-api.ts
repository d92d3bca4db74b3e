import type { ErrorBody } from "../../src/contract/errors.ts";

/** A response of the API that is not a success. */
export class Refusal extends Error {
  /** The error code of the contract. */
  readonly code: string;
  /** The reason of the contract, if there is one. */
  readonly reason: string | undefined;

  constructor(request: string, status: number, { code, details }: ErrorBody["error"]) {
    const { reason } = details;
    super(`${request} responded with ${status} ${code}${reason ? `: ${reason}` : ""}`);
    this.code = code;
    this.reason = reason;
  }
}

/**
 * Makes a request and returns the response body; beyond the key's quota, it waits and retries.
 *
 * @throws Refusal if the response is not a success.
 */
export type LocalApi = <T>(method: string, path: string, body?: object) => Promise<T>;

/** Opens the API at `base`, such as `http://localhost:8787`, with one key. */
export function openApi(base: string, apiKey: string): LocalApi {
  return async function request<T>(method: string, path: string, body?: object): Promise<T> {
    const response = await fetch(base + path, {
      method,
      headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const text = await response.text();
    if (response.status === 429) {
      const waitSeconds = Number(response.headers.get("Retry-After"));
      await new Promise((resolve) => setTimeout(resolve, waitSeconds * 1000));
      return request(method, path, body);
    }
    const content = text === "" ? null : JSON.parse(text);
    if (!response.ok) throw new Refusal(`${method} ${path}`, response.status, content.error);
    return content;
  };
}
