import type { ErrorBody } from "../../src/contract/errors.ts";
import { readSession, refuse } from "./session.ts";
import type {
  DeliveryDetails,
  DeliveryPage,
  KeyPage,
  Kind,
  NewSecret,
  OpenedSession,
  Redelivered,
  TestResult,
  Webhook,
  WebhookWithDays,
  Workspace,
} from "./shapes.ts";

const PATIENCE_MS = 20_000;

/** Why a call failed: the server refused it or, without a status, was unreachable. */
export class Fault extends Error {
  readonly status: number | null;
  readonly body: ErrorBody["error"] | null;
  readonly requestId: string | null;
  /** How long to wait before the next call, if the server said so. */
  readonly retryAfterSeconds: number | null;

  constructor(answer: Response | null, body: ErrorBody | null) {
    super(body?.error.code ?? "unreachable");
    this.status = answer?.status ?? null;
    this.body = body?.error ?? null;
    this.requestId = answer?.headers.get("X-Request-Id") ?? null;
    const seconds = body?.error.details.retry_after_seconds ?? answer?.headers.get("Retry-After");
    this.retryAfterSeconds = this.status === 429 ? Number(seconds ?? 10) : null;
  }
}

/**
 * @param token of the session, or of a link.
 * @throws Fault; if the server refuses the token, the session knows.
 */
async function call<T>(
  method: string,
  path: string,
  body?: object,
  token = readSession().token,
): Promise<T> {
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(`/portal/api${path}`, {
      method,
      headers: {
        Authorization: `Bearer ${token}`,
        ...(body && { "Content-Type": "application/json" }),
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
  if (answer.status === 403) refuse(token, "withdrawn");
  throw new Fault(answer, readError(text));
}

/** The error body, if there is one: an intermediary may answer in its own format. */
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
  call<OpenedSession>("POST", "/session", undefined, link);

export const readWorkspace = () => call<Workspace>("GET", "/workspace");

export const listWebhooks = async () => (await call<{ data: Webhook[] }>("GET", "/webhooks")).data;

export const listKeys = (cursor: string | null) =>
  call<KeyPage>("GET", `/keys?cursor=${encodeURIComponent(cursor ?? "")}`);

export const readWebhook = (id: string) => call<WebhookWithDays>("GET", webhook(id));

export const createWebhook = (body: { url: string; events: Kind[] }) =>
  call<Webhook & { secret: string }>("POST", "/webhooks", body);

export const deleteWebhook = (id: string) => call<null>("DELETE", webhook(id));

export const enableWebhook = (id: string, body: { redeliver_since?: string }) =>
  call<Redelivered>("POST", `${webhook(id)}/enable`, body);

export const renewSecret = (id: string, overlap_seconds: number) =>
  call<NewSecret>("POST", `${webhook(id)}/secret`, { overlap_seconds });

export const sendTest = (id: string, type: Kind) =>
  call<TestResult>("POST", `${webhook(id)}/test`, { type });

/** @param query the filters, the page: `state`, `type`, `limit`, `cursor`. */
export const listDeliveries = (id: string, query: URLSearchParams) =>
  call<DeliveryPage>("GET", `${webhook(id)}/deliveries?${query}`);

export const readDelivery = (id: string, eventId: string) =>
  call<DeliveryDetails>("GET", `${webhook(id)}/deliveries/${encodeURIComponent(eventId)}`);

export const redeliver = (
  id: string,
  body: { event_ids: string[] } | { since: string; states: string[] },
) => call<Redelivered>("POST", `${webhook(id)}/redeliver`, body);
