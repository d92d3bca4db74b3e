import type { WebhookEvent } from "../../src/contract/enumerations.ts";
import type { ErrorBody } from "../../src/contract/errors.ts";
import type { OpenedSession } from "../../src/contract/portal-token.ts";
import type {
  DeliveryDetails,
  DeliveryView,
  FailureCount,
  FailureView,
  NewSecret,
  Redelivered,
  TestResult,
  WebhookDetails,
  WebhookView,
} from "../../src/history/views.ts";
import type {
  ApiKeyView,
  ReplayView,
  WebhookChangeView,
  WorkspaceChangeView,
  WorkspaceDetails,
} from "../../src/workspaces/views.ts";
import { readSession, refuse } from "./session.ts";

const PATIENCE_MS = 20_000;

/** The failure of a call: the server rejected it or, without a status, was unreachable. */
export class Fault extends Error {
  readonly status: number | null;
  readonly body: ErrorBody["error"] | null;
  readonly requestId: string | null;
  /** The delay before the next call, if the server requested one. */
  readonly retryAfterSeconds: number | null;

  constructor(answer: Response | null, body: ErrorBody | null) {
    super(body?.error.code ?? "unreachable");
    this.status = answer?.status ?? null;
    this.body = body?.error ?? null;
    this.requestId = answer?.headers.get("X-Request-Id") ?? null;
    const given = body?.error.details.retry_after_seconds;
    const seconds = given ?? (this.status === 429 ? answer?.headers.get("Retry-After") : null);
    this.retryAfterSeconds = seconds == null ? (this.status === 429 ? 10 : null) : Number(seconds);
  }
}

interface CallOptions {
  /** The token, by default that of the session. */
  token?: string | null;
  headers?: Record<string, string>;
}

/**
 * Calls the API of the portal.
 *
 * @throws Fault. If the server rejects the token, `refuse` updates the session.
 */
async function call<T>(
  method: string,
  path: string,
  body?: object,
  { token = readSession().token, headers = {} }: CallOptions = {},
): Promise<T> {
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(`/portal/api${path}`, {
      method,
      headers: {
        Authorization: `Bearer ${token}`,
        ...(body && { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    text = await answer.text();
  } catch {
    throw new Fault(null, null);
  }
  if (answer.ok) return (text === "" ? null : JSON.parse(text)) as T;
  if (answer.status === 401) refuse(token, "expired");
  const error = readError(text);
  // A read-only session stays open.
  if (answer.status === 403 && error?.error.details.reason !== "read_only_session")
    refuse(token, "withdrawn");
  throw new Fault(answer, error);
}

/** The error body, if there is one. An intermediary may respond in its own format. */
function readError(text: string): ErrorBody | null {
  try {
    return JSON.parse(text) as ErrorBody;
  } catch {
    return null;
  }
}

const webhook = (id: string) => `/webhooks/${encodeURIComponent(id)}`;

/** Exchanges the token of a link for a session. */
export const exchangeLink = (link: string) =>
  call<OpenedSession>("POST", "/session", undefined, { token: link });

/** A webhook that was just created: nothing else shows its secret. */
interface NewWebhook {
  id: string;
  url: string;
  secret: string;
}

/** A page of a list. */
export interface Page<Item> {
  items: Item[];
  nextCursor: string | null;
}

export const readWorkspace = () => call<WorkspaceDetails>("GET", "/workspace");

export const listWebhooks = async () => (await call<Page<WebhookView>>("GET", "/webhooks")).items;

export const listKeys = (cursor: string | null) =>
  call<Page<ApiKeyView>>("GET", `/keys?cursor=${encodeURIComponent(cursor ?? "")}`);

export const readWebhook = (id: string) => call<WebhookDetails>("GET", webhook(id));

/** A webhook to create. */
export interface Creation {
  url: string;
  events: WebhookEvent[];
  description?: string;
  headers?: Record<string, string>;
}

/** Subscribes a URL: once, however often it is called with the same key. */
export const createWebhook = (body: Creation, key: string) =>
  call<NewWebhook>("POST", "/webhooks", body, { headers: { "Idempotency-Key": key } });

export const deleteWebhook = (id: string) => call<null>("DELETE", webhook(id));

/** The fields of a webhook that can be changed. */
export interface Changes {
  url?: string;
  events?: WebhookEvent[];
  description?: string;
  /** Adds these, or replaces those of the same names. */
  setHeaders?: Record<string, string>;
  removeHeaders?: string[];
  /** The values that the reader saw. If another person has changed one since, nothing is changed. */
  expected?: Pick<Changes, "url" | "events"> & { description?: string | null };
}

/** @returns the names of the headers that do not follow a URL to another origin. */
export const updateWebhook = (id: string, body: Changes) =>
  call<{ headersDropped?: string[] }>("POST", `${webhook(id)}/update`, body);

export const listChanges = (id: string, cursor: string | null) =>
  call<Page<WebhookChangeView>>(
    "GET",
    `${webhook(id)}/changes?cursor=${encodeURIComponent(cursor ?? "")}`,
  );

export const listHistory = (cursor: string | null) =>
  call<Page<WorkspaceChangeView>>("GET", `/changes?cursor=${encodeURIComponent(cursor ?? "")}`);

export const disableWebhook = (id: string) => call<object>("POST", `${webhook(id)}/disable`, {});

/** Enables a webhook. With a time, also examines a part of the events since then, as `redeliver` does. */
export const enableWebhook = (
  id: string,
  body: { redeliverSince?: string; cursor?: string | null },
) => call<Redelivered>("POST", `${webhook(id)}/enable`, body);

export const renewSecret = (id: string, overlapSeconds: number) =>
  call<NewSecret>("POST", `${webhook(id)}/secret`, { overlapSeconds });

export const endOverlap = (id: string) => call<object>("POST", `${webhook(id)}/overlap`, {});

export const sendTest = (id: string, type: WebhookEvent) =>
  call<TestResult>("POST", `${webhook(id)}/test`, { type });

/**
 * A page of deliveries. One that is filtered may be empty although older ones match.
 *
 * @param query the filters and the page.
 */
export const listDeliveries = (id: string, query: URLSearchParams) =>
  call<Page<DeliveryView>>("GET", `${webhook(id)}/deliveries?${query}`);

/** A page of the deliveries of all webhooks that are failing or have failed for good. A filtered one may be empty, too. */
export const listFailures = (query: URLSearchParams) =>
  call<Page<FailureView>>("GET", `/failures?${query}`);

/** Counts the failures that a list with these filters has, by webhook. */
export const countFailures = async (query: URLSearchParams) =>
  (await call<{ items: FailureCount[] }>("GET", `/failure-counts?${query}`)).items;

export const readDelivery = (id: string, eventId: string) =>
  call<DeliveryDetails>("GET", `${webhook(id)}/deliveries/${encodeURIComponent(eventId)}`);

/** Events of a webhook that were recorded in a period, by the state of their delivery. */
export interface RedeliveryRange {
  since: string;
  until?: string | null;
  states: string[];
  type?: WebhookEvent | null;
  /** The status of the last response, or its class, such as `5xx`. */
  status?: string | null;
}

/** Sends events again: some, or a part of a range. A dry run only counts them. */
export const redeliver = (
  id: string,
  body: { eventIds: string[] } | (RedeliveryRange & { cursor: string | null; dryRun?: boolean }),
) => call<Redelivered>("POST", `${webhook(id)}/redeliver`, body);

/** The last replays of a webhook, newest first. */
export const listReplays = async (id: string) =>
  (await call<{ items: ReplayView[] }>("GET", `${webhook(id)}/replays`)).items;

export const stopReplay = (id: string, replayId: string) =>
  call<object>("POST", `${webhook(id)}/stop`, { replayId });
