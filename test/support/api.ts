import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect } from "vitest";
import worker, { Platform as DeployedPlatform } from "../../scripts/shared/limited-worker.ts";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import {
  ApiError,
  type ErrorCode,
  type ErrorDetails,
  type Reason,
} from "../../src/contract/errors.ts";
import { randomId } from "../../src/contract/ids.ts";
import type { WebhookDelivery } from "../../src/events/bodies.ts";
import { app } from "../../src/http/app.ts";
import type { ExportItem } from "../../src/lifecycle/export.ts";
import { Platform as PlatformEntrypoint } from "../../src/platform/entrypoint.ts";
import { invoke } from "../../src/platform/invoke.ts";
import { OPERATIONS, type PlatformInput } from "../../src/platform/operations.ts";
import { mintApiKey } from "../../src/rate-limit/key-text.ts";
import { DATABASE, inDatabase, WORKSPACE_DB } from "./placement.ts";
import { insertSubscriptions } from "./rows.ts";
import { bodyOf, EVENTS_WITH_BODIES, type EventWithBody } from "./stored-bodies.ts";

/*
 * Tests call the Worker and the Platform API as functions. A request or an RPC of `exports` has Vitest ask Node first
 * where the main module is, which takes longer than most of them. `test/contract` and `test/long` send theirs to the
 * built Worker.
 */

/** A Platform API of which each call is this one. */
const platformBy = (call: (method: "ledger", input: object) => unknown) =>
  new Proxy({} as PlatformEntrypoint, {
    get: (_, method: "ledger") => (input: object) => call(method, input),
  });

/** The Platform API of the deployment. */
export const Platform = platformBy((method, input) =>
  new DeployedPlatform(createExecutionContext(), env)[method](input),
);

/** A response as received; `body` is its JSON, null if there is none. */
export interface Answer<Body = unknown> {
  status: number;
  headers: Record<string, string>;
  body: Body;
}

type Fetch = (request: Request) => Promise<Response>;

const ORIGIN = "https://api.example";
const fetchWorker: Fetch = async (request) =>
  worker.fetch(request as Parameters<typeof worker.fetch>[0], env, createExecutionContext());

/** Another deployment of the Worker, with different variables or bindings. */
export function deployedWith(overrides: Partial<Env>, onResponse?: () => void): Fetch {
  return deployedAs({ ...env, ...inDatabase(overrides) }, onResponse);
}

/** Another deployment of the Worker, with exactly these bindings. Its requests end with the work after their response. */
export function deployedAs(bindings: Env, onResponse = () => {}): Fetch {
  return async (request) => {
    const context = createExecutionContext();
    const response = await app.fetch(request, bindings, context);
    onResponse();
    await waitOnExecutionContext(context);
    return response;
  };
}

let addresses = 0;

/** An IPv4 address that no other request of this file uses. */
export function freshAddress(): string {
  addresses++;
  return `198.18.${addresses >> 8}.${addresses & 255}`;
}

/** Sends one request, from its own address unless it specifies one. */
export async function send<Body = unknown>(
  path: string,
  init: RequestInit = {},
  fetch = fetchWorker,
): Promise<Answer<Body>> {
  const headers = new Headers(init.headers);
  if (!headers.has("CF-Connecting-IP")) headers.set("CF-Connecting-IP", freshAddress());
  const response = await fetch(new Request(ORIGIN + path, { ...init, headers }));
  const text = await response.text();
  return {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    body: (text === "" ? null : JSON.parse(text)) as Body,
  };
}

/** A text that the Worker serves, such as a page. */
export async function fetchText(path: string, init: RequestInit = {}, fetch = fetchWorker) {
  const response = await fetch(new Request(ORIGIN + path, init));
  const headers = Object.fromEntries(response.headers);
  return { status: response.status, headers, text: await response.text() };
}

/** The API as used with a key. */
export function openApi(apiKey: string, fetch = fetchWorker) {
  const authorized = <Body>(path: string, { headers, ...init }: RequestInit = {}) => {
    const all = new Headers(headers);
    all.set("Authorization", `Bearer ${apiKey}`);
    return send<Body>(path, { ...init, headers: all }, fetch);
  };
  const withJson = <Body>(method: string, path: string, body: unknown, headers = {}) =>
    authorized<Body>(path, {
      method,
      headers: { "Content-Type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  return {
    send: authorized,
    get: <Body = unknown>(path: string) => authorized<Body>(path),
    post: <Body = unknown>(path: string, body: unknown, headers?: Record<string, string>) =>
      withJson<Body>("POST", path, body, headers),
    patch: <Body = unknown>(path: string, body: unknown) => withJson<Body>("PATCH", path, body),
    delete: (path: string) => authorized(path, { method: "DELETE" }),
  };
}

/** The Platform API of another deployment. */
export function platformOf(bindings: Env): PlatformEntrypoint {
  return new PlatformEntrypoint(createExecutionContext(), bindings);
}

/** The Platform API for what tests set up. Its calls leave no entry in the audit trail, which takes as long as most. */
export const setUp = platformBy((method, input) => {
  const operation = { ...OPERATIONS[method], skipsAuditTrail: true };
  return invoke(method, operation, { env, ctx: createExecutionContext() }, input, "rpc");
});

/** A new workspace with a key, and the API as seen with this key. */
export async function openWorkspace(key: { requestsPerWindow?: number } = {}) {
  const { workspaceId } = await setUp.createWorkspace({
    name: "Agence Lumière",
    database: DATABASE,
  });
  const { keyId, apiKey } = await setUp.createApiKey({ workspaceId, ...key });
  return { workspaceId, keyId, apiKey, api: openApi(apiKey) };
}

/**
 * A new workspace that stores every event: events that no subscription lists are not stored, so a
 * disabled subscription lists them all. It is owed nothing.
 */
export async function openListeningWorkspace(key: { requestsPerWindow?: number } = {}) {
  const workspace = await openWorkspace(key);
  await keepJournal();
  const { workspaceId } = workspace;
  const listener = { url: "https://listener.example/", events: WebhookEvent.options };
  await insertSubscriptions([{ id: randomId("webhook"), workspaceId, ...listener, disabledAt: 0 }]);
  return workspace;
}

/** Keeps the commit order of events, which ids of the same millisecond do not show. */
function keepJournal() {
  return WORKSPACE_DB.batch([
    WORKSPACE_DB.prepare(
      "CREATE TABLE IF NOT EXISTS journal (position INTEGER PRIMARY KEY, event_id TEXT UNIQUE)",
    ),
    WORKSPACE_DB.prepare(`CREATE TRIGGER IF NOT EXISTS keep_journal AFTER INSERT ON events
      BEGIN INSERT INTO journal (event_id) VALUES (new.id); END`),
  ]);
}

/** Some time, as every answer writes it. */
export const SOME_TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

const FIGURE = expect.stringMatching(/^[0-9]+$/);

/** The contract's headers on every response, and those that may accompany them. */
export const EVERY_ANSWER = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "strict-transport-security": "max-age=31536000; includeSubDomains",
  "x-content-type-options": "nosniff",
  ratelimit: expect.stringMatching(/^"default";r=\d+;t=\d+$/),
  "ratelimit-policy": expect.stringMatching(/^"default";q=\d+;w=\d+$/),
  "x-ratelimit-limit": FIGURE,
  "x-ratelimit-remaining": FIGURE,
  "x-ratelimit-reset": FIGURE,
  "x-request-id": expect.stringMatching(/^[0-9a-f-]+(-[A-Z]{3})?$/),
};

/** The media type of every JSON response. */
const JSON_TYPE = "application/json; charset=utf-8";

/** The whole expected success response. */
export function success(status: number, body: unknown): Answer {
  return { status, headers: { ...EVERY_ANSWER, "content-type": JSON_TYPE }, body };
}

/** The whole expected error response. */
export function refusal(status: number, code: ErrorCode, details: ErrorDetails = {}): Answer {
  const { message } = new ApiError(code, details);
  const answer = success(status, { error: { code, message, details } });
  const more: Record<number, Record<string, string>> = {
    401: { "www-authenticate": "Bearer" },
    429: { "retry-after": FIGURE },
  };
  const help = { link: `</docs/guides/errors#${code.replaceAll("_", "-")}>; rel="help"` };
  return { ...answer, headers: { ...answer.headers, ...help, ...more[status] } };
}

/** The whole expected response to a request with an invalid parameter. */
export function invalid(parameter: string, reason: Reason, more: ErrorDetails = {}): Answer {
  return refusal(400, "invalid_request", { parameter, reason, ...more });
}

/** The rate limit headers of a response's headers. */
export function rateLimitOf({ headers }: Answer) {
  return {
    limit: Number(headers["x-ratelimit-limit"]),
    remaining: Number(headers["x-ratelimit-remaining"]),
    resetSeconds: Number(headers["x-ratelimit-reset"]),
  };
}

/**
 * A response without its rate limit headers and request id: two responses that agree in the rest are
 * indistinguishable.
 */
export function withoutRateLimit({ status, headers, body }: Answer): Answer {
  const same = Object.entries(headers).filter(
    ([name]) => !/^((x-)?ratelimit|x-request-id)/.test(name),
  );
  return { status, headers: Object.fromEntries(same), body };
}

export const EMPTY_PAGE = { data: [], has_more: false, next_cursor: null };

/** The ledger of a workspace without subscriptions. */
export const EMPTY_LEDGER = {
  created: 0,
  pending: 0,
  delivered: 0,
  exhausted: 0,
  cancelled: 0,
  overdue: 0,
  oldestPendingSeconds: null,
  oldestWebhookId: null,
  addsUp: true,
};

/** One request with this `Authorization` header, or none. */
export function authorizedBy(authorization: string | null, address = freshAddress()) {
  const headers = new Headers({ "CF-Connecting-IP": address });
  if (authorization !== null) headers.set("Authorization", authorization);
  return send("/v1/leads", { headers });
}

/** A key with a valid checksum that was never issued. */
export function unknownKey(): Promise<string> {
  return mintApiKey(env.API_KEY_CHECKSUM_KEYS);
}

/** A well-formed key made by someone who has our code but not our secret. */
export function inventedKey(): Promise<string> {
  return mintApiKey(`invented:${btoa("i".repeat(32))}`);
}

/** A revoked key. */
export async function revokedKey(): Promise<string> {
  const { keyId, apiKey } = await openWorkspace();
  await Platform.revokeApiKey({ keyId });
  return apiKey;
}

/** The error message of a call of the Platform API that must fail. */
export async function errorOf(call: PromiseLike<unknown>): Promise<string> {
  return call.then(
    () => expect.unreachable("the call succeeded"),
    (error: Error) => error.message,
  );
}

/** The stored events of a workspace, in commit order. */
export async function eventsOf(workspaceId: string): Promise<WebhookDelivery[]> {
  await keepJournal();
  const { results } = await WORKSPACE_DB.prepare(
    `SELECT stored.* FROM (${EVENTS_WITH_BODIES}) AS stored LEFT JOIN journal ON event_id = eventId
      WHERE workspaceId = ? ORDER BY position, eventId`,
  )
    .bind(workspaceId)
    .all<EventWithBody>();
  const bodies = results.map((event) => bodyOf(env.ENCRYPTION_KEYS, event));
  return (await Promise.all(bodies)).map((body) => JSON.parse(body ?? "null"));
}

export type AutomationReport = PlatformInput<"recordAutomations">["automations"][number];
export type LeadReport = PlatformInput<"recordLeads">["leads"][number];
export type RunReport = PlatformInput<"recordRuns">["runs"][number];

const AGENT = { reference: "agent-1", name: "Agence Lumière" };

/** An automation as the platform reports it. */
export function automationReport(
  reference: string,
  differences: Partial<AutomationReport> = {},
): AutomationReport {
  return {
    reference,
    type: "social_comments",
    provider: "instagram",
    agent: AGENT,
    status: "active",
    ...differences,
  };
}

/** A lead as the platform reports it. */
export function leadReport(reference: string, differences: Partial<LeadReport> = {}): LeadReport {
  return { reference, source: "social", agent: AGENT, ...differences };
}

/** A run as the platform reports it. */
export function runReport(
  reference: string,
  automationId: string,
  differences: Partial<RunReport> = {},
): RunReport {
  return { reference, automationId, status: "success", triggerType: "comment", ...differences };
}

/** Records one automation and returns its id. */
export async function recordAutomation(
  workspaceId: string,
  differences: Partial<AutomationReport> = {},
): Promise<string> {
  const automations = [automationReport(crypto.randomUUID(), differences)];
  const { ids } = await setUp.recordAutomations({ workspaceId, automations });
  return ids[0] as string;
}

/** Records one lead and returns its id. */
export async function recordLead(
  workspaceId: string,
  differences: Partial<LeadReport> = {},
): Promise<string> {
  const leads = [leadReport(crypto.randomUUID(), differences)];
  const { ids } = await setUp.recordLeads({ workspaceId, leads });
  return ids[0] as string;
}

/** All pages of a list of the Platform API; `between` is called before each page but the first. */
export async function pagesOf<Item>(
  read: (cursor: string | null) => PromiseLike<{ items: Item[]; nextCursor: string | null }>,
  between = async () => {},
): Promise<Item[][]> {
  const pages: Item[][] = [];
  let cursor: string | null = null;
  do {
    if (cursor !== null) await between();
    const page: { items: Item[]; nextCursor: string | null } = await read(cursor);
    pages.push(page.items);
    cursor = page.nextCursor;
  } while (cursor !== null);
  return pages;
}

/** Everything that is exported of a workspace; `between` is called before each page but the first. */
export function exportAll(workspaceId: string, between?: () => Promise<void>) {
  return pagesOf<ExportItem>(
    (cursor) => Platform.exportWorkspace({ workspaceId, cursor }),
    between,
  );
}

/** All items of a list, page by page: a page of large items ends early. */
export async function listAll<Item>(
  api: ReturnType<typeof openApi>,
  path: string,
): Promise<Item[]> {
  const items: Item[] = [];
  for (let cursor = ""; ; ) {
    const { body } = await api.get<{ data: Item[]; next_cursor: string | null }>(
      `/v1/${path}?limit=100&cursor=${cursor}`,
    );
    items.push(...body.data);
    if (body.next_cursor === null) return items;
    cursor = body.next_cursor;
  }
}
