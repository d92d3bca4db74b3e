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
  /** Where the API is, without `/v1`: `https://api.example.com`. */
  url: string;
  apiKey: string;
  /** How long one call may wait for its quota in all; 120 when left out. */
  maxWaitSeconds?: number;
}

export interface Options {
  /** Ends the call, and its waiting, with the signal's reason. */
  signal?: AbortSignal;
}

/**
 * The API, typed. Lists are read page by page while they are iterated, newest first. A call that is
 * refused for its quota waits and is sent again; every other refusal is thrown as an `ApiError`.
 */
export class Client {
  readonly #api: Api<paths>;

  constructor({ url, apiKey, maxWaitSeconds = 120 }: Settings) {
    this.#api = createClient<paths>({
      baseUrl: url,
      headers: { Authorization: `Bearer ${apiKey}` },
      fetch: (request) => fetchWithinQuota(request, maxWaitSeconds),
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

  /** Pausing what is paused changes nothing. The answer is the automation as it is now. */
  pauseAutomation(id: string, options?: Options): Promise<Automation> {
    return this.#control(id, "paused", options);
  }

  /** Activating what is active changes nothing. The answer is the automation as it is now. */
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

  /** The `secret` in the answer verifies deliveries. Keep it: no later answer holds it. */
  createSubscription(
    subscription: Schemas["WebhookCreation"],
    options?: Options,
  ): Promise<Schemas["WebhookWithSecret"]> {
    return dataOf(this.#api.POST("/v1/webhooks", { body: subscription, ...options }));
  }

  listSubscriptions(options?: Options): AsyncGenerator<Subscription> {
    return readPages((query) => this.#api.GET("/v1/webhooks", { params: { query }, ...options }));
  }

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

/** An answer as openapi-fetch gives it. */
type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;
type Page<T> = { data: T[]; next_cursor: string | null };

async function dataOf<T>(answer: Answer<T>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok) throw new ApiError(response, error);
  return data as T;
}

/** Follows the cursor from page to page; an empty one is the first. */
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

/**
 * Sends a request again after each 429, once its `Retry-After` has passed: what was refused so has
 * had no effect. The 429 itself is the answer when that would take more than `maxWaitSeconds` in all.
 */
async function fetchWithinQuota(request: Request, maxWaitSeconds: number): Promise<Response> {
  let waited = 0;
  for (;;) {
    const response = await fetch(request.clone());
    if (response.status !== 429) return response;
    const seconds = Math.max(1, Number(response.headers.get("Retry-After")) || 1);
    waited += seconds;
    if (waited > maxWaitSeconds) return response;
    await response.body?.cancel();
    const { signal } = request;
    await setTimeout(seconds * 1_000, null, { signal }).catch(() => signal.throwIfAborted());
  }
}
