/**
 * What the tests of the contract share. They talk HTTP and nothing else: to the API with a key, to
 * `POST /platform/METHOD` (docs/platform.md) for set-up, and to the server of the subscribers for what it
 * received. So they can test any implementation; see README.md.
 */
import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, inject } from "vitest";
import type { Post } from "./server/receiver.ts";
import type { Deployment } from "./server/setup.ts";

// The resources, field by field, as the contract has them.

export const DATE_TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
export const idOf = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}_.`));

export interface Automation {
  id: string;
  name: string;
  type: string;
  provider: string;
  agent_id: string;
  agent_name: string;
  status: string;
  updated_at: string;
}
/** Has each field of an automation and no other. */
export const AN_AUTOMATION: Automation = {
  id: idOf("aut"),
  name: expect.any(String),
  type: expect.toBeOneOf([
    "social_comments",
    "social_story",
    "social_messages",
    "lead_ads",
    "crm_source",
  ]),
  provider: expect.any(String),
  agent_id: idOf("agt"),
  agent_name: expect.any(String),
  status: expect.toBeOneOf(["active", "paused", "draft", "error"]),
  updated_at: DATE_TIME,
};

export interface Lead {
  id: string;
  source: string;
  agent_id: string;
  name: string | null;
  email: string | null;
  phone: string | null;
  custom_fields: object;
  created_at: string;
}
/** An object; `expect.any(Object)` also accepts null and lists. */
export const AN_OBJECT = expect.toSatisfy(
  (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  "an object",
);
const STRING_OR_NULL = expect.toSatisfy(
  (value) => value === null || typeof value === "string",
  "a string or null",
);
export const A_LEAD: Lead = {
  id: idOf("lea"),
  source: expect.toBeOneOf(["widget", "social", "telephony", "lead_ads", "crm"]),
  agent_id: idOf("agt"),
  name: STRING_OR_NULL,
  email: STRING_OR_NULL,
  phone: STRING_OR_NULL,
  custom_fields: AN_OBJECT,
  created_at: DATE_TIME,
};

export interface Run {
  id: string;
  automation_id: string;
  status: string;
  trigger_type: string;
  occurred_at: string;
  actions: { type?: string; status?: string }[];
  lead_id: string | null;
}
export const A_RUN: Run = {
  id: idOf("run"),
  automation_id: idOf("aut"),
  status: expect.toBeOneOf(["success", "partial", "failed"]),
  trigger_type: expect.toBeOneOf(["comment", "story_reply", "message", "lead_ads", "crm_event"]),
  occurred_at: DATE_TIME,
  actions: expect.any(Array),
  lead_id: expect.toBeOneOf([null, idOf("lea")]),
};

export interface Webhook {
  id: string;
  url: string;
  events: string[];
  created_at: string;
  disabled_at: string | null;
}
export const EVENTS = ["run.completed", "lead.created", "automation.status_changed"];
export const A_WEBHOOK: Webhook = {
  id: idOf("whk"),
  url: expect.any(String),
  events: expect.any(Array),
  created_at: DATE_TIME,
  disabled_at: expect.toBeOneOf([null, DATE_TIME]),
};

/** The body that subscribers receive. */
export interface WebhookDelivery<Data = { id: string }> {
  id: string;
  type: string;
  created_at: string;
  data: Data;
}

export interface Page<Item = { id: string }> {
  data: Item[];
  has_more: boolean;
  next_cursor: string | null;
}

export interface ErrorBody {
  error: {
    code: string;
    message: string;
    details: { parameter?: string; max?: number; reason?: string; retry_after_seconds?: number };
  };
}

/** The whole body of an error with this code. */
export function anError(code: unknown, details: unknown = AN_OBJECT) {
  return { error: { code, message: expect.any(String), details } };
}

/** The whole body of any error. */
export const AN_ERROR = anError(
  expect.toBeOneOf([
    "invalid_request",
    "invalid_api_key",
    "workspace_access_denied",
    "automation_not_found",
    "webhook_not_found",
    "route_not_found",
    "automation_not_controllable",
    "rate_limited",
    "internal_error",
  ]),
);

/** A status of success, where the contract does not say which. */
export const SUCCESS = expect.toSatisfy((status) => status >= 200 && status < 300, "a success");

/** A body that is too large for any limit that a service may have. */
export const TOO_LARGE = { url: "a".repeat(1_000_000), status: "paused" };

// Requests

export const deployment = inject("deployment");
/** A deployment that serves `GET /automations` and `GET /automations/{id}` only, if there is one. */
export const partialDeployment = inject("partialDeployment");
/** A key with which `GET /automations` fails for reasons of the server, if there is one. */
export const failingKey = inject("failingKey");

/** What HTTP alone cannot reach: see server/controls.ts. Null if there is no way to it. */
export const controls = inject("controls");
/** Whether the deployment is not the Worker of this repository, and may decide otherwise where the contract is silent. */
export const isElsewhere = inject("isElsewhere");

/** A response as received. `body` is its JSON, or null if it has none. */
export interface Answer<Body = unknown> {
  status: number;
  headers: Headers;
  body: Body;
}

interface Options {
  headers?: Record<string, string>;
  body?: string;
}

/** Sends one request, whatever the answer. @param path below the base address, such as `/v1/leads`. */
export async function send<Body = ErrorBody>(
  method: string,
  path: string,
  options: Options = {},
  to: Deployment = deployment,
): Promise<Answer<Body>> {
  const response = await fetch(to.url + path, { method, ...options });
  const text = await response.text();
  const body = text === "" ? null : JSON.parse(text);
  return { status: response.status, headers: response.headers, body };
}

/**
 * Sends a request that must fail to authenticate. Other tests may have made this address one that failed too
 * often, so it waits until the address is no longer refused.
 */
export async function sendUnauthenticated(
  authorization: string | null,
  method = "GET",
  path = "/leads",
  body?: object,
): Promise<Answer<ErrorBody>> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (authorization !== null) headers.Authorization = authorization;
  for (;;) {
    const answer = await send(method, `/v1${path}`, {
      headers,
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    if (answer.status !== 429) return answer;
    await sleep(Math.max(1, Number(answer.headers.get("Retry-After"))) * 1000);
  }
}

/** Fails to authenticate until the address is refused. @returns the refusal. */
export async function failTooOften(): Promise<Answer<ErrorBody>> {
  for (let sent = 0; sent < 2_000; sent += 50) {
    const fail = () => send("GET", "/v1/leads", { headers: { Authorization: "Bearer no" } });
    const answers = await Promise.all(Array.from({ length: 50 }, fail));
    const refused = answers.find(({ status }) => status === 429);
    if (refused) return refused;
  }
  throw new Error("2,000 failures were not too many");
}

/** The API as used with a key. Paths are relative to `/v1`. */
export function openApi(apiKey: string, to: Deployment = deployment) {
  const call = <Body>(method: string, path: string, body?: unknown) =>
    send<Body>(
      method,
      `/v1${path}`,
      {
        headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
        ...(body === undefined
          ? {}
          : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      },
      to,
    );
  return {
    call,
    get: <Body = ErrorBody>(path: string) => call<Body>("GET", path),
    post: <Body = ErrorBody>(path: string, body: unknown) => call<Body>("POST", path, body),
    patch: <Body = ErrorBody>(path: string, body: unknown) => call<Body>("PATCH", path, body),
    delete: <Body = ErrorBody>(path: string) => call<Body>("DELETE", path),
  };
}

export type Api = ReturnType<typeof openApi>;

/** The operations of the contract, by the contract's names, each called on what does not exist. */
export const OPERATIONS: { operation: string; method: string; path: string; body?: object }[] = [
  { operation: "GET /automations", method: "GET", path: "/automations" },
  { operation: "GET /automations/{id}", method: "GET", path: "/automations/aut_0" },
  {
    operation: "PATCH /automations/{id}",
    method: "PATCH",
    path: "/automations/aut_0",
    body: { status: "paused" },
  },
  { operation: "GET /automations/{id}/runs", method: "GET", path: "/automations/aut_0/runs" },
  { operation: "GET /runs", method: "GET", path: "/runs" },
  { operation: "GET /leads", method: "GET", path: "/leads" },
  {
    operation: "POST /webhooks",
    method: "POST",
    path: "/webhooks",
    body: { url: "https://subscribers.example", events: EVENTS },
  },
  { operation: "GET /webhooks", method: "GET", path: "/webhooks" },
  { operation: "DELETE /webhooks/{id}", method: "DELETE", path: "/webhooks/whk_0" },
];

// Set-up, as the platform and its operators do it

/** Calls a method of the Platform API. @throws Error if it fails. */
export async function platform<Output = unknown>(
  method: string,
  input: object,
  to: Deployment = deployment,
): Promise<Output> {
  const answer = await send<Output>(
    "POST",
    `/platform/${method}`,
    {
      headers: { Authorization: `Bearer ${to.platformKey}`, "Content-Type": "application/json" },
      body: JSON.stringify(input),
    },
    to,
  );
  if (answer.status !== 200) throw new Error(`${method}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

export const AGENT = { reference: "agent", name: "Agence Lumière" };

/** A new workspace with access to the service, a key, and what the platform records in it. */
export async function openWorkspace({
  requestsPerWindow,
  adminEmails,
  on = deployment,
}: {
  requestsPerWindow?: number;
  adminEmails?: string[];
  on?: Deployment;
} = {}) {
  const { workspaceId } = await platform<{ workspaceId: string }>(
    "createWorkspace",
    { name: "Contract", adminEmails },
    on,
  );
  const createKey = () =>
    platform<{ keyId: string; apiKey: string }>(
      "createApiKey",
      { workspaceId, requestsPerWindow },
      on,
    );
  const { keyId, apiKey } = await createKey();
  const record = async (method: string, list: string, report: object) => {
    const reports = [{ reference: randomUUID(), ...report }];
    const { ids } = await platform<{ ids: [string] }>(method, { workspaceId, [list]: reports }, on);
    return ids[0];
  };
  return {
    workspaceId,
    keyId,
    apiKey,
    api: openApi(apiKey, on),
    createKey,
    /** Records an automation, a lead or a run that differs from a usual one in these fields. @returns its id. */
    recordAutomation: (differences: object = {}) => {
      const usual = {
        type: "social_comments",
        provider: "instagram",
        agent: AGENT,
        status: "active",
      };
      return record("recordAutomations", "automations", { ...usual, ...differences });
    },
    recordLead: (differences: object = {}) =>
      record("recordLeads", "leads", { source: "social", agent: AGENT, ...differences }),
    recordRun: (automationId: string, differences: object = {}) => {
      const usual = { automationId, status: "success", triggerType: "comment" };
      return record("recordRuns", "runs", { ...usual, ...differences });
    },
  };
}

export type Workspace = Awaited<ReturnType<typeof openWorkspace>>;

// Subscribers

/** A delivery as a subscriber received it. */
export interface Received {
  method: string;
  headers: Record<string, string>;
  rawBody: Buffer;
  delivery: WebhookDelivery;
  /** Unix milliseconds. */
  at: number;
}

/** How long a delivery may take to arrive, on a busy machine. */
const ARRIVAL_MAX_MS = 20_000;

/** Reads a value until it is as expected, or patience ends. @returns what was read last. */
export async function eventually<Value>(
  read: () => Promise<Value>,
  isExpected: (value: Value) => boolean,
  timeoutMs = ARRIVAL_MAX_MS,
): Promise<Value> {
  const until = Date.now() + timeoutMs;
  for (;;) {
    const value = await read();
    if (isExpected(value) || Date.now() > until) return value;
    await sleep(250);
  }
}

/**
 * A subscriber's server: it answers its posts with these statuses in turn, and repeats the last one.
 *
 * @param answers such as `500,204`, `204@7000` to answer after 7 s, or `500:ok` to answer with the body `ok`.
 */
export function openReceiver(answers = "204") {
  const path = `/${randomUUID()}/${answers}`;
  const read = async (query = ""): Promise<Received[]> => {
    const response = await fetch(inject("subscribersAddress") + path + query);
    const posts = (await response.json()) as Post[];
    return posts.map(({ method, headers, body, at }) => {
      const rawBody = Buffer.from(body, "base64");
      return { method, headers, rawBody, delivery: JSON.parse(rawBody.toString()), at };
    });
  };
  return {
    url: inject("subscribersUrl") + path,
    /** What it has received so far, oldest first. */
    read: () => read(),
    /** Waits until it has received so many, and returns all that it has received. */
    waitFor: async (count: number, timeoutMs = ARRIVAL_MAX_MS): Promise<Received[]> => {
      const received = await read(`?count=${count}&ms=${timeoutMs}`);
      expect(received.length, "what was posted in time").toBeGreaterThanOrEqual(count);
      return received;
    },
  };
}

/** Subscribes to events. */
export async function subscribe(api: Api, url: string, events: string[] = EVENTS) {
  const answer = await api.post<Webhook & { secret: string }>("/webhooks", { url, events });
  expect(answer.status).toBe(201);
  return answer.body;
}

/** A workspace with a subscriber to all events. */
export async function openListening() {
  const workspace = await openWorkspace();
  const receiver = openReceiver();
  const webhook = await subscribe(workspace.api, receiver.url);
  /** Waits for so many events. A lead is recorded after them, so that zero events are an answer, too. */
  const events = async (count: number): Promise<WebhookDelivery[]> => {
    const last = await workspace.recordLead();
    const received = await receiver.waitFor(count + 1);
    return received.map(({ delivery }) => delivery).filter(({ data }) => data.id !== last);
  };
  return { ...workspace, receiver, webhook, events };
}

/** Calls the server of server/controls.ts. */
async function control<Output>(method: string, path: string): Promise<Output> {
  const response = await fetch(controls + path, { method });
  if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`);
  return response.json() as Promise<Output>;
}

/** The e-mails to an address, once there is one. */
export function readEmails(address: string): Promise<string[]> {
  return eventually(
    () => control<string[]>("GET", `/emails/${address}`),
    ({ length }) => length > 0,
  );
}

/** A workspace with a subscription that was disabled after prolonged failures, and another to all events. */
export async function openDisabledByFailures() {
  const adminEmails = [`${randomUUID()}@example.com`, `${randomUUID()}@example.com`];
  const workspace = await openWorkspace({ adminEmails });
  const [failing, listener] = [openReceiver("500"), openReceiver()];
  await subscribe(workspace.api, listener.url);
  const { id } = await subscribe(workspace.api, failing.url, ["lead.created"]);
  await workspace.recordLead();
  const [first] = (await failing.waitFor(1)) as [Received];
  await eventually(
    () => readDelivery(id, first.delivery.id),
    ({ attempts }) => attempts === 1,
  );
  await control("POST", `/failing-for-days/${id}`);
  await workspace.recordLead();
  const webhook = await eventually(
    async () => {
      const { data } = (await workspace.api.get<Page<Webhook>>("/webhooks")).body;
      return data.find((one) => one.id === id) as Webhook;
    },
    ({ disabled_at }) => disabled_at !== null,
  );
  expect(webhook.disabled_at).not.toBeNull();
  return { ...workspace, adminEmails, webhook, listener };
}

/**
 * Whether a delivery is authentic and recent, as a receiver decides by the contract.
 *
 * @param at the receiver's clock, in Unix milliseconds.
 */
export function isAuthentic(secret: string, { headers, rawBody }: Received, at: number): boolean {
  const [, t = "", v1 = ""] =
    /^t=(\d+),v1=([0-9a-f]+)$/.exec(headers["x-service-signature"] ?? "") ?? [];
  if (Math.abs(at / 1000 - Number(t)) > 300) return false;
  const expected = createHmac("sha256", secret).update(`${t}.`).update(rawBody).digest();
  const given = Buffer.from(v1, "hex");
  return given.length === expected.length && timingSafeEqual(given, expected);
}

/** The state of a delivery and how often it was attempted, as an operator sees it. */
export function readDelivery(webhookId: string, eventId: string) {
  return platform<{ state: string; attempts: number; dueAt: string | null }>("readDelivery", {
    webhookId,
    eventId,
  });
}
