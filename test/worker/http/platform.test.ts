import { env } from "cloudflare:workers";
import { eq } from "drizzle-orm";
import { describe, expect, test, vi } from "vitest";
import { RECORD_MAX_BYTES, TEST_EVENTS_PER_MINUTE } from "../../../src/contract/limits.ts";
import { workspaces } from "../../../src/db/schema.ts";
import { OPERATIONS } from "../../../src/platform/operations.ts";
import {
  deployedWith,
  errorOf,
  freshAddress,
  leadReport,
  openWorkspace,
  Platform,
  refusal,
  send,
} from "../../support/api.ts";
import { subscribe } from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { db } from "../../support/placement.ts";

const KEY = btoa("p".repeat(32));
/** Its base64 has the characters that are neither letters nor digits. */
const OLD = btoa("\xfb".repeat(32));
const fetch = deployedWith({ PLATFORM_KEYS: `crm:${KEY},old_2-b:${OLD}` });

/** Calls the endpoint. */
function post<Body = unknown>(
  path: string,
  body: unknown,
  { token = KEY as string | null, type = "application/json", address = freshAddress() } = {},
  from = fetch,
) {
  const headers = new Headers({ "Content-Type": type, "CF-Connecting-IP": address });
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return send<Body>(path, { method: "POST", headers, body: text }, from);
}

describe("POST /platform", () => {
  test("does what the method does by RPC, and returns the same", async () => {
    const { workspaceId, api } = await openWorkspace();
    const input = { workspaceId, leads: [leadReport("1"), leadReport("2")] };
    const recorded = await post<{ ids: string[] }>("/platform/recordLeads", input);
    expect(recorded).toMatchObject({ status: 200, body: { created: 2 } });
    expect(recorded.headers["cache-control"]).toBe("no-store");
    expect(await Platform.recordLeads(input)).toEqual({ ids: recorded.body.ids, created: 0 });
    expect((await api.get<{ data: object[] }>("/v1/leads")).body.data).toHaveLength(2);
  });

  test.each(Object.keys(OPERATIONS))("knows %s", async (method) => {
    expect((await post(`/platform/${method}`, { nothing: 1 })).status).toBe(400);
  });

  test.each<[method: string, input: unknown, named?: string]>([
    ["recordLeads", { workspaceId: "wks_none", leads: [{ reference: 1 }] }],
    ["recordLeads", []],
    ["ledger", { workspaceId: "none" }, "workspaceId"],
    ["readWebhook", { webhookId: "none" }, "webhookId"],
    ["revokeApiKey", { keyId: "none" }, "keyId"],
  ])("rejects %s %j with the message of RPC, and names what is unknown", async (...row) => {
    const [method, input, parameter] = row;
    const call = Platform[method as "ledger"];
    const message = await errorOf(call(input as never));
    expect(await post(`/platform/${method}`, input)).toMatchObject({
      status: 400,
      body: {
        error: { code: "invalid_request", message, details: parameter ? { parameter } : {} },
      },
    });
  });

  test("names what has used up its allowance, and when to try again", async () => {
    const { workspaceId } = await openWorkspace();
    const { id: webhookId } = await subscribe(workspaceId);
    const used = { testEvents: TEST_EVENTS_PER_MINUTE, testEventsSince: Date.now() };
    await db.update(workspaces).set(used).where(eq(workspaces.id, workspaceId));
    const input = { webhookId, type: "lead.created" };
    expect(await post("/platform/sendTestEvent", input)).toMatchObject({
      status: 400,
      body: {
        error: { details: { parameter: "webhookId", retry_after_seconds: expect.any(Number) } },
      },
    });
  });

  test("says what is missing in the deployment", async () => {
    const { workspaceId } = await openWorkspace();
    const portal = deployedWith({ PLATFORM_KEYS: `crm:${KEY}`, PORTAL_ORIGIN: "" as never });
    const message = expect.stringContaining("PORTAL_ORIGIN is empty");
    expect(await post("/platform/createPortalLink", { workspaceId }, {}, portal)).toMatchObject({
      status: 400,
      body: { error: { code: "invalid_request", message } },
    });
  });

  test("logs any other error, and does not show it", async () => {
    const { workspaceId } = await openWorkspace();
    const DB = interposed(env.DB, () => Promise.reject(new Error("secret of the database")));
    const broken = deployedWith({ PLATFORM_KEYS: `crm:${KEY}`, DB });
    const logged = vi.spyOn(console, "error").mockImplementation(() => {});
    const answer = await post("/platform/readWorkspace", { workspaceId }, {}, broken);
    expect(answer).toMatchObject({ status: 500, body: refusal(500, "internal_error").body });
    const failed = logged.mock.calls.map(String).find((line) => line.includes("request_failed"));
    expect(failed).toContain("secret of the database");
  });

  test("notes in the audit trail which key called, and for whom", async () => {
    const { workspaceId } = await openWorkspace();
    await post("/platform/ledger", { workspaceId, actor: "Ada" }, { token: `old_2-b:${OLD}` });
    const [noted] = (await Platform.listAuditTrail({ workspaceId })).items;
    const call = { method: "ledger", actor: "Ada", via: "https:old_2-b", result: "ok" };
    expect(noted).toMatchObject(call);
  });

  test.each([
    ["no key", null],
    ["another key", btoa("r".repeat(32))],
    ["a key under another's id", `crm:${OLD}`],
    ["a shorter key", btoa("p".repeat(31))],
    ["what is no key", "key_live_0"],
  ])("rejects %s, before it reads the body", async (_, token) => {
    const { status, body, headers } = await post("/platform/health", "not JSON", { token });
    expect({ status, body }).toEqual({ status: 401, body: refusal(401, "invalid_api_key").body });
    expect(headers["www-authenticate"]).toBe("Bearer");
  });

  test("counts failures like those of API keys", async () => {
    const address = freshAddress();
    const fail = async () => (await post("/platform/health", {}, { token: null, address })).status;
    for (let i = 0; i < 20; i++) expect(await fail()).toBe(401);
    expect(await fail()).toBe(429);
    expect((await post("/platform/health", {}, { address })).status).toBe(200);
  });

  test("is logged with the pseudonym of the IP address, whether the key is valid or not", async () => {
    const log = vi.spyOn(console, "log");
    const address = freshAddress();
    for (const token of [KEY, null]) await post("/platform/health", {}, { token, address });
    const requests = log.mock.calls
      .map(([line]) => JSON.parse(line))
      .filter(({ event }) => event === "request")
      .map((line) => [line.status, line.address]);
    const pseudonym = requests[0]?.[1];
    expect(pseudonym).toMatch(/^[0-9a-f]{16}$/);
    expect(requests).toEqual([
      [200, pseudonym],
      [401, pseudonym],
    ]);
  });

  test("takes a hundred of the largest records, and no larger body", async () => {
    const { workspaceId } = await openWorkspace();
    // Half of each is numbers, because no call is too large by their number.
    const numbers = Array(RECORD_MAX_BYTES / 4).fill(0);
    const leads = Array.from({ length: 100 }, (_, i) => {
      const lead = (note: string) => leadReport(`large-${i}`, { customFields: { numbers, note } });
      const { length } = new TextEncoder().encode(JSON.stringify(lead("")));
      return lead("x".repeat(RECORD_MAX_BYTES - length));
    });
    expect(await post("/platform/recordLeads", { workspaceId, leads })).toMatchObject({
      status: 200,
      body: { created: 100 },
    });
    expect((await post("/platform/recordLeads", "x".repeat(1_800_000))).status).toBe(413);
    expect((await post("/platform/health", "{}", { type: "text/plain" })).status).toBe(415);
    expect((await post("/platform/health", "{")).status).toBe(400);
  });

  test("knows no other method, and none by GET", async () => {
    for (const method of ["toString", "constructor", "__proto__", "fetch", "health/x"])
      expect((await post(`/platform/${method}`, {})).status, method).toBe(404);
    const get = { headers: { Authorization: `Bearer ${KEY}` } };
    expect((await send("/platform/health", get, fetch)).status).toBe(404);
  });

  test.each([undefined, ""])("is not there if its secret is %j", async (PLATFORM_KEYS) => {
    const off = deployedWith({ PLATFORM_KEYS } as Partial<Env>);
    expect(await post("/platform/health", {}, {}, off)).toEqual(refusal(404, "route_not_found"));
    expect("PLATFORM_KEYS" in env).toBe(false);
  });
});
