import { exports } from "cloudflare:workers";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import {
  deployedWith,
  freshAddress,
  openApi,
  openWorkspace,
  Platform,
  recordAutomation,
  refusal,
} from "../../support/api.ts";
import { jumpTo } from "../../support/deliveries.ts";
import { sessionToken } from "../../support/portal.ts";
import { shortenTimers } from "../../support/timers.ts";

const PLATFORM_KEY = btoa("p".repeat(32));
const withPlatform = deployedWith({ PLATFORM_KEYS: `crm:${PLATFORM_KEY}` });
const fetchWorker = (request: Request) => exports.default.fetch(request);
const creation = { url: "https://ok-slow.example/", events: ["lead.created"] };

/** Begins a request; its body ends when `end` is called. */
function begin(method: string, path: string, token: string, body: object, fetch = fetchWorker) {
  const { readable, writable } = new IdentityTransformStream();
  const writer = writable.getWriter();
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  const headers = {
    Authorization: `Bearer ${token}`,
    "Content-Type": "application/json",
    "CF-Connecting-IP": freshAddress(),
  };
  const request = new Request(`https://api.example${path}`, { method, headers, body: readable });
  const response = fetch(request);
  const begun = writer.write(bytes.subarray(0, 5));
  begun.catch(() => {});
  return {
    response,
    async end() {
      await begun;
      await writer.write(bytes.subarray(5));
      await writer.close();
      return (await response).status;
    },
  };
}

/** Long enough for a request to be admitted, if its body were not waited for. */
const WAIT_MS = 200;

type Workspace = Awaited<ReturnType<typeof openWorkspace>>;

/** The ways in which what a client may do ends, and how they are answered. */
const ENDINGS: [string, number, (workspace: Workspace) => Promise<unknown>][] = [
  ["its key was revoked", 401, ({ keyId }) => Platform.revokeApiKey({ keyId })],
  [
    "its workspace has lost access",
    403,
    ({ workspaceId }) => Platform.setWorkspaceAccess({ workspaceId, granted: false }),
  ],
];

describe.each(ENDINGS)("a request whose body ends after %s", (_, status, endAccess) => {
  test("subscribes nothing", async () => {
    const workspace = await openWorkspace();
    const { workspaceId, apiKey } = workspace;
    const { end } = begin("POST", "/v1/webhooks", apiKey, creation);
    await sleep(WAIT_MS);
    await endAccess(workspace);
    expect(await end()).toBe(status);
    expect((await Platform.listWebhooks({ workspaceId })).items).toEqual([]);
  });

  test("controls no automation", async () => {
    const workspace = await openWorkspace();
    const { workspaceId, apiKey } = workspace;
    const path = `/v1/automations/${await recordAutomation(workspaceId)}`;
    const { end } = begin("PATCH", path, apiKey, { status: "paused" });
    await sleep(WAIT_MS);
    await endAccess(workspace);
    expect(await end()).toBe(status);
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    const { apiKey: other } = await Platform.createApiKey({ workspaceId });
    expect((await openApi(other).get(path)).body).toMatchObject({ status: "active" });
  });
});

test("A request whose body ends after its key has expired subscribes nothing", async () => {
  const { workspaceId, apiKey, keyId, api } = await openWorkspace();
  await api.get("/v1/webhooks");
  await Platform.rollApiKey({ keyId, overlapSeconds: 60 });
  const { end } = begin("POST", "/v1/webhooks", apiKey, creation);
  await sleep(WAIT_MS);
  jumpTo(Date.now() + 61_000);
  expect(await end()).toBe(401);
  expect((await Platform.listWebhooks({ workspaceId })).items).toEqual([]);
});

describe("a request of the portal", () => {
  test.each([
    ["subscribes nothing", "", creation],
    ["changes no subscription", "/update", { url: "https://ok-other.example/" }],
  ])("%s if its body ends after the workspace lost access", async (_, operation, body) => {
    const { workspaceId, api } = await openWorkspace();
    const { body: webhook } = await api.post<{ id: string }>("/v1/webhooks", creation);
    const token = await sessionToken(workspaceId);
    const path = `/portal/api/webhooks${operation && `/${webhook.id}${operation}`}`;
    const { end } = begin("POST", path, token, body);
    await sleep(WAIT_MS);
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await end()).toBe(403);
    const { items } = await Platform.listWebhooks({ workspaceId });
    expect(items.map(({ url }) => url)).toEqual([creation.url]);
  });

  test("subscribes nothing if its body ends after its session", async () => {
    const { workspaceId } = await openWorkspace();
    const token = await sessionToken(workspaceId);
    const { end } = begin("POST", "/portal/api/webhooks", token, creation);
    await sleep(WAIT_MS);
    jumpTo(Date.now() + 61 * 60_000);
    expect(await end()).toBe(401);
    expect((await Platform.listWebhooks({ workspaceId })).items).toEqual([]);
  });
});

describe("a body that takes longer than ten seconds", () => {
  const TOO_SLOW = refusal(400, "invalid_request", { reason: "body_too_slow" });

  test.each<[string, (workspace: Workspace) => Promise<string> | string]>([
    ["/v1/webhooks", ({ apiKey }) => apiKey],
    ["/mcp", ({ apiKey }) => apiKey],
    ["/portal/api/webhooks", ({ workspaceId }) => sessionToken(workspaceId)],
    ["/platform/recordLeads", () => PLATFORM_KEY],
  ])("gets 400 with a reason of its own: %s", async (path, tokenOf) => {
    const token = await tokenOf(await openWorkspace());
    shortenTimers(10_000);
    const { response } = begin("POST", path, token, creation, withPlatform);
    const { status, headers } = await response;
    const { error } = await (await response).json<{ error: { data?: object } }>();
    // An error of JSON-RPC has that of the API as its data.
    const { data = error } = error;
    expect({ status, body: { error: data } }).toEqual({ status: 400, body: TOO_SLOW.body });
    expect(headers.get("X-RateLimit-Limit")).toMatch(/^\d+$/);
  });

  test("is not waited for if its key is invalid", async () => {
    const { response } = begin("POST", "/v1/webhooks", "key_live_nonsense", creation);
    // Longer than an unread body may take to be drained, and shorter than one may take to be read.
    const soon = sleep(5_000, "no response");
    expect(await Promise.race([response.then(({ status }) => status), soon])).toBe(401);
  });
});
