import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { Contract } from "../fuzz/document.ts";
import { exchange, type Service, startPrism, startSwitchboard } from "./prism.ts";

let served: Runtime;
let unserved: Runtime;
let switchboard: Service;
let prism: Service;

/**
 * API keys by what happens to their requests; `unserved` is a key of the deployment without routes.
 */
let keys: Record<"good" | "barred" | "spent" | "unserved", string>;
let ids: Record<"active" | "draft" | "subscription", string>;

beforeAll(async () => {
  [served, unserved] = await Promise.all([
    startRuntime({ vars: { ALLOW_LOCAL_WEBHOOKS: "" } }),
    startRuntime({ vars: { SERVED_ROUTES: "" } }),
  ]);
  switchboard = await startSwitchboard({ served: served.url, unserved: unserved.url });
  prism = await startPrism(switchboard.url);
  const { workspaceId, apiKey } = await openWorkspace(served);
  const barred = await openWorkspace(served);
  await served.env.PLATFORM.setWorkspaceAccess({
    workspaceId: barred.workspaceId,
    granted: false,
  });
  const spent = await openWorkspace(served, 1);
  await fetch(new URL("/v1/leads", served.url), {
    headers: { Authorization: `Bearer ${spent.apiKey}` },
  });
  const other = await openWorkspace(unserved);
  keys = { good: apiKey, barred: barred.apiKey, spent: spent.apiKey, unserved: other.apiKey };
  ids = await fill(workspaceId, apiKey);
});

afterAll(async () => {
  await prism.stop();
  await switchboard.stop();
  await Promise.all([served.stop(), unserved.stop()]);
});

async function openWorkspace({ env: { PLATFORM } }: Runtime, requestsPerWindow = 1_000) {
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const { apiKey } = await PLATFORM.createApiKey({ workspaceId, requestsPerWindow });
  return { workspaceId: String(workspaceId), apiKey: String(apiKey) };
}

const SUBSCRIPTION = { url: "https://hooks.example.com/leads", events: ["lead.created"] };

/** Records some of everything, with full fields and empty ones. */
async function fill(workspaceId: string, apiKey: string): Promise<typeof ids> {
  const { PLATFORM } = served.env;
  const agent = { reference: "lyon", name: "Agence Lumière Lyon" };
  const automations = (["active", "draft", "paused", "error"] as const).map((status) => ({
    ...{ reference: status, type: "social_comments" as const, provider: "instagram" },
    ...{ agent, status },
  }));
  const recorded = await PLATFORM.recordAutomations({ workspaceId, automations });
  const [active = "", draft = ""] = [...recorded.ids].map(String);
  const person = { name: "Camille Durand", email: "camille@example.com", phone: "+33600000000" };
  const customFields = { budget: "10 000 €", rooms: [3, 4], garden: null };
  const leads = await PLATFORM.recordLeads({
    workspaceId,
    leads: [
      { reference: "1", source: "crm", agent },
      { reference: "2", source: "social", agent, ...person, customFields },
    ],
  });
  const run = { automationId: active, triggerType: "comment" as const };
  await PLATFORM.recordRuns({
    workspaceId,
    runs: [
      { ...run, reference: "1", status: "success", leadId: String(leads.ids[1]) },
      { ...run, reference: "2", status: "failed", actions: [{ type: "send_message" }, {}] },
    ],
  });
  const created = await fetch(new URL("/v1/webhooks", served.url), {
    method: "POST",
    headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
    body: JSON.stringify(SUBSCRIPTION),
  });
  const { id: subscription } = (await created.json()) as { id: string };
  return { active, draft, subscription };
}

/** A request and its expected status; `:name` in its path is the id of that name. */
interface Request {
  path: string;
  body?: string;
  type?: string;
  status: number;
}

/** A request with a JSON body. */
function json(path: string, body: unknown, status: number): Request {
  return { path, body: JSON.stringify(body), status };
}

/** How lists handle their parameters. */
function list(path: string): Request[] {
  return [
    { path, status: 200 },
    { path: `${path}?limit=1&cursor=null&colour=red`, status: 200 },
    ...["limit=0", "limit=101", "limit=ten", "limit=1&limit=2", "cursor=x"].map((query) => ({
      path: `${path}?${query}`,
      status: 400,
    })),
  ];
}

/**
 * How operations with a body handle an invalid one; Prism does not let through what is not JSON at
 * all.
 */
function bodies(path: string): Request[] {
  return [
    json(path, {}, 400),
    json(path, [], 400),
    json(path, { ...SUBSCRIPTION, status: "active", colour: "red" }, 400),
    json(path, { ...SUBSCRIPTION, padding: "x".repeat(17_000) }, 413),
    { path, body: "status=paused", type: "application/x-www-form-urlencoded", status: 415 },
  ];
}

/** For each operation, requests with a valid key. The first of them succeeds. */
const REQUESTS: Record<string, Request[]> = {
  "GET /v1/automations": list("/v1/automations"),
  "GET /v1/automations/{id}": [
    { path: "/v1/automations/:active", status: 200 },
    { path: "/v1/automations/aut_unknown", status: 404 },
  ],
  "PATCH /v1/automations/{id}": [
    json("/v1/automations/:active", { status: "paused" }, 200),
    json("/v1/automations/:active", { status: "active" }, 200),
    json("/v1/automations/aut_unknown", { status: "active" }, 404),
    json("/v1/automations/:draft", { status: "active" }, 422),
    json("/v1/automations/:active", { status: "draft" }, 400),
    ...bodies("/v1/automations/:active"),
  ],
  "GET /v1/automations/{id}/runs": [
    ...list("/v1/automations/:active/runs"),
    { path: "/v1/automations/aut_unknown/runs", status: 404 },
  ],
  "GET /v1/leads": list("/v1/leads"),
  "GET /v1/runs": list("/v1/runs"),
  "GET /v1/webhooks": list("/v1/webhooks"),
  "POST /v1/webhooks": [
    json("/v1/webhooks", SUBSCRIPTION, 201),
    json("/v1/webhooks", { ...SUBSCRIPTION, events: [] }, 400),
    ...["http://hooks.example.com", "https://10.0.0.1", "https://a:b@example.com", "no"].map(
      (url) => json("/v1/webhooks", { ...SUBSCRIPTION, url }, 400),
    ),
    ...bodies("/v1/webhooks"),
  ],
  "DELETE /v1/webhooks/{id}": [
    { path: "/v1/webhooks/:subscription", status: 204 },
    { path: "/v1/webhooks/:subscription", status: 404 },
  ],
};

/** The operations and statuses that were checked. */
const judged = new Set<string>();

/**
 * Sends a request of an operation through Prism, which must find that the response is as
 * documented.
 */
async function judge(name: string, request: Request, key: keyof typeof keys | null = "good") {
  const [method = ""] = name.split(" ");
  const path = request.path.replace(/:(\w+)/, (_, id: keyof typeof ids) => ids[id]);
  const { body, type = "application/json" } = request;
  const init = {
    method,
    headers: {
      ...(key && { Authorization: `Bearer ${keys[key]}` }),
      ...(body && { "Content-Type": type }),
    },
    ...(body && { body }),
  };
  const upstream = key === "unserved" ? "unserved" : "served";
  const answer = await exchange(prism.url, upstream, path, init);
  expect(answer.status, `${method} ${path}: ${answer.body}`).toBe(request.status);
  expect(answer.ofResponse, `${method} ${path}: ${answer.body}`).toEqual([]);
  // If Prism had not found the operation, it would have said so and checked nothing.
  expect(answer.ofRequest.map(({ message }) => message)).not.toContain("Selected route not found");
  if (request.status < 300) expect(answer.ofRequest, path).toEqual([]);
  judged.add(`${name} ${request.status}`);
}

describe("Prism finds no response that violates the document", () => {
  test.each(Object.keys(REQUESTS))("%s", async (name) => {
    const requests = REQUESTS[name] ?? [];
    const [first] = requests;
    if (!first) throw new Error(`no request for ${name}`);
    await judge(name, { ...first, status: 401 }, null);
    await judge(name, { ...first, status: 403 }, "barred");
    await judge(name, { ...first, status: 429 }, "spent");
    await judge(name, { ...first, status: 404 }, "unserved");
    for (const request of requests) await judge(name, request);
  });

  test("not even if the database fails", async () => {
    const tables = ["deliveries", "events", "runs", "leads", "automations", "subscriptions"];
    for (const table of tables) await served.env.DB.exec(`DROP TABLE ${table}`);
    for (const [name, [first]] of Object.entries(REQUESTS))
      if (first) await judge(name, { ...first, status: 500 });
  });

  test("with any status of any operation", async () => {
    const { operations } = await Contract.read(served.url);
    const promised = operations.flatMap(({ method, path, responses }) =>
      Object.keys(responses).map((status) => `${method} ${path} ${status}`),
    );
    expect([...judged].toSorted()).toEqual(promised.toSorted());
  });
});
