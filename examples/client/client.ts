import { setTimeout } from "node:timers/promises";
import createClient, { type Client as Api } from "openapi-fetch";
import type { components, paths } from "./api.js";
import { ApiError } from "./api-error.js";

export { ApiError };

type Schemas = components["schemas"];
export type Automation = Schemas["Automation"];
export type Lead = Schemas["Lead"];
export type Run = Schemas["Run"];
export type Subscription = Schemas["Webhook"];

export interface Settings {
  /** The address of the API, without `/v1`: `https://api.example.com`. */
  url: string;
  apiKey: string;
  /** How long one call may wait to be retried, in total; default 120. */
  maxWaitSeconds?: number;
}

export interface Options {
  /** Aborts the call, even while it waits, with the signal's reason. */
  signal?: AbortSignal;
}

export interface CreationOptions extends Options {
  /**
   * Makes the call safe to repeat for 24 hours, for instance after its response was lost: the same key and
   * subscription return the same subscription and secret. A random UUID, stored before the first call.
   */
  idempotencyKey?: string;
}

/**
 * The API, typed. Lists are fetched page by page as they are iterated, newest first. A call beyond the rate
 * limit waits and is retried, and so is one that fails temporarily. Any other error response is thrown as an
 * `ApiError`.
 */
export class Client {
  readonly #api: Api<paths>;

  constructor({ url, apiKey, maxWaitSeconds = 120 }: Settings) {
    this.#api = createClient<paths>({
      baseUrl: url,
      headers: { Authorization: `Bearer ${apiKey}` },
      fetch: (request) => fetchWithRetries(request, maxWaitSeconds),
    });
  }

  listAutomations(options?: Options): AsyncGenerator<Automation> {
    return readPages((query) =>
      this.#api.GET("/v1/automations", { params: { query }, ...options }),
    );
  }

  getAutomation(id: string, options?: Options): Promise<Automation> {
    return dataOf(this.#api.GET("/v1/automations/{id}", { params: { path: { id } }, ...options }));
  }

  /** Pauses an automation; no change if it is already paused. @returns the automation. */
  pauseAutomation(id: string, options?: Options): Promise<Automation> {
    return this.#control(id, "paused", options);
  }

  /** Activates an automation; no change if it is already active. @returns the automation. */
  activateAutomation(id: string, options?: Options): Promise<Automation> {
    return this.#control(id, "active", options);
  }

  listLeads(options?: Options): AsyncGenerator<Lead> {
    return readPages((query) => this.#api.GET("/v1/leads", { params: { query }, ...options }));
  }

  listRuns(options?: Options): AsyncGenerator<Run> {
    return readPages((query) => this.#api.GET("/v1/runs", { params: { query }, ...options }));
  }

  listRunsOf(automationId: string, options?: Options): AsyncGenerator<Run> {
    const path = { id: automationId };
    return readPages((query) =>
      this.#api.GET("/v1/automations/{id}/runs", { params: { path, query }, ...options }),
    );
  }

  /** The `secret` in the response verifies deliveries. Store it: no other response contains it. */
  createSubscription(
    subscription: Schemas["WebhookCreation"],
    { idempotencyKey, ...options }: CreationOptions = {},
  ): Promise<Schemas["WebhookWithSecret"]> {
    const header = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey };
    const params = { header };
    return dataOf(this.#api.POST("/v1/webhooks", { params, body: subscription, ...options }));
  }

  listSubscriptions(options?: Options): AsyncGenerator<Subscription> {
    return readPages((query) => this.#api.GET("/v1/webhooks", { params: { query }, ...options }));
  }

  /** A 404 means that it is deleted already, for instance by a try whose response was lost. */
  async deleteSubscription(id: string, options?: Options): Promise<void> {
    await dataOf(this.#api.DELETE("/v1/webhooks/{id}", { params: { path: { id } }, ...options }));
  }

  #control(id: string, status: "active" | "paused", options?: Options): Promise<Automation> {
    const params = { path: { id } };
    return dataOf(
      this.#api.PATCH("/v1/automations/{id}", { params, body: { status }, ...options }),
    );
  }
}

/** A response as openapi-fetch returns it. */
type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;
type Page<T> = { data: T[]; next_cursor: string | null };

async function dataOf<T>(answer: Answer<T>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok) throw new ApiError(response, error);
  return data as T;
}

/** Follows the cursor from page to page; an empty cursor is the first page. */
async function* readPages<T>(
  read: (query: { limit: number; cursor: string }) => Answer<Page<T>>,
): AsyncGenerator<T> {
  let cursor: string | null = "";
  while (cursor !== null) {
    const page: Page<T> = await dataOf(read({ limit: 100, cursor }));
    yield* page.data;
    cursor = page.next_cursor;
  }
}

/** How long a response may take, longer than the API needs. */
const RESPONSE_MAX_MS = 30_000;

/**
 * Retries a request that will probably succeed, once `Retry-After` has passed. Returns the error response if the waits
 * would exceed `maxWaitSeconds` in total.
 */
async function fetchWithRetries(request: Request, maxWaitSeconds: number): Promise<Response> {
  let waited = 0;
  for (;;) {
    const signal = AbortSignal.any([request.signal, AbortSignal.timeout(RESPONSE_MAX_MS)]);
    const response = await fetch(request.clone(), { signal });
    if (!isRetryable(request, response)) return limited(response);
    const seconds = Math.max(1, Number(response.headers.get("Retry-After")) || 1);
    waited += seconds;
    if (waited > maxWaitSeconds) return limited(response);
    await response.body?.cancel();
    await setTimeout(seconds * 1_000, null, { signal: request.signal }).catch(() =>
      request.signal.throwIfAborted(),
    );
  }
}

/** A 429 had no effect. A 500 with `Retry-After` will pass, but a POST may have had its effect already. */
function isRetryable({ method }: Request, { status, headers }: Response): boolean {
  return status === 429 || (status === 500 && headers.has("Retry-After") && method !== "POST");
}

/** Maximum size of a response in bytes, larger than any page. A server that sends more is not the API. */
const RESPONSE_MAX = 16_000_000;

/** The response, whose body fails once it is too large. */
function limited(response: Response): Response {
  let size = 0;
  const body = response.body?.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        size += chunk.length;
        if (size > RESPONSE_MAX) throw new Error(`the response exceeds ${RESPONSE_MAX} bytes`);
        controller.enqueue(chunk);
      },
    }),
  );
  return new Response(body ?? null, response);
}
