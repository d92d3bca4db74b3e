import { env, exports } from "cloudflare:workers";
import { afterEach, expect, test, vi } from "vitest";
import { createAttempt } from "../../../src/webhooks/dispatch/attempt.ts";
import { RESPONSE_KEPT_BYTES, RESPONSE_READ_MS } from "../../../src/webhooks/exchange.ts";
import { recordLead } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  postOf,
  receivedBy,
  redeliver,
  statesOf,
  subscribe,
  subscriberUrl,
} from "../../support/deliveries.ts";

const { Platform } = exports;

afterEach(() => void vi.restoreAllMocks());

/** Makes the attempts that are due by now, or in `laterMs`, over the network. */
function deliver(id: string, laterMs = 0) {
  return dispatchAt(() => Date.now() + laterMs, [id], createAttempt(env));
}

/** A subscriber that behaves so, and what was announced to it. */
async function withOwed(behaviour: string, query: Record<string, string> = {}, count = 1) {
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const url = `${subscriberUrl(behaviour)}&${new URLSearchParams(query)}`;
  const { id } = await subscribe(workspaceId, { url });
  const drafts = await announceLeads(workspaceId, count, Date.now());
  return { workspaceId, id, url, drafts, eventId: drafts[0]?.id ?? "" };
}

async function logOf(webhookId: string, eventId: string) {
  return (await Platform.readDelivery({ webhookId, eventId })).attemptLog;
}

/** The only attempt that such a subscriber gets, and what it got. */
async function attemptAt(behaviour: string, query: Record<string, string> = {}) {
  const { id, eventId, url } = await withOwed(behaviour, query);
  await deliver(id);
  const [attempt, ...others] = await logOf(id, eventId);
  expect(others).toEqual([]);
  return { ...attempt, received: (await receivedBy({ url }))[0] };
}

test.each([200, 422])("the log of an attempt has headers and answer: %i", async (status) => {
  const [says, type] = ['{"error":"unknown field"}', "application/json"];
  const { received, ...attempt } = await attemptAt(`says-${status}`, { says, type });
  const response = { contentType: type, body: says, truncated: false };
  expect(attempt).toMatchObject({ outcome: "answered", status, response });
  const headers = Object.entries(attempt.request?.headers ?? {});
  const sent = headers.map(([name, value]) => [name.toLowerCase(), value]);
  expect(sent.map(([name]) => name).toSorted()).toEqual([
    ...["content-type", "user-agent", "webhook-id", "webhook-signature", "webhook-timestamp"],
    "x-service-signature",
  ]);
  expect(received?.headers).toMatchObject(Object.fromEntries(sent));
});

/** As much of a text as is kept. */
const FULL = "x".repeat(RESPONSE_KEPT_BYTES);
test.each([
  ["text", "text/html; charset=utf-8", "<b>é</b>", "<b>é</b>"],
  ["problem details", "application/problem+json", "{}", "{}"],
  ["XML", "application/xml", "<a/>", "<a/>"],
  ["text without a type", "", "no", "no"],
  ["text of a long type", `text/plain; of=${"x".repeat(300)}`, "no", "no"],
  ["text in an unknown charset", "text/plain; charset=klingon", "no", "no"],
  ["an image", "image/png", "\x89PNG", null],
  ["bytes", "application/octet-stream", "text", null],
  ["text of 1,024 bytes", "text/plain", FULL, FULL],
  ["longer text", "text/plain", `${FULL.slice(1)}é`, FULL.slice(1), true],
])("of a response that is %s, the body is kept if it is text", async (...row) => {
  const [, type, says, body, truncated = false] = row;
  const contentType = type.slice(0, 200) || null;
  const expected = { request: { headers: {} }, response: { contentType, body, truncated } };
  expect(await attemptAt("says-500", { says, type })).toMatchObject(expected);
});

test.each(["status-500", "status-204"])("%s without a body has no response", async (behaviour) => {
  expect(await attemptAt(behaviour)).toMatchObject({ response: null, request: { headers: {} } });
});

test("of a response that never ends, the first 1,024 bytes are kept, in whole characters", async () => {
  const startedAt = Date.now();
  for (const behaviour of ["flood-200", "flood-500"]) {
    const { response } = await attemptAt(behaviour, { type: "text/plain" });
    const body = "é".repeat(RESPONSE_KEPT_BYTES / 2);
    expect(response).toEqual({ contentType: "text/plain", body, truncated: true });
  }
  expect(Date.now() - startedAt).toBeLessThan(5_000);
});

test("the outcome is known before the body has come", async () => {
  const { drafts, ...about } = await withOwed("endless");
  const post = await postOf(about, drafts, Date.now());
  const { kept, ...outcome } = await createAttempt(env)(...post);
  expect(outcome).toEqual(answered(200));
  const startedAt = performance.now();
  await kept;
  expect(performance.now() - startedAt).toBeGreaterThan(RESPONSE_READ_MS / 2);
});

test("a body that never comes is waited for once by a dispatch", async () => {
  const { id } = await withOwed("endless", {}, 12);
  await deliver(id);
  expect(await statesOf(id)).toEqual({ delivered: 12 });
  const logs = (await deliveriesTo(id)).map(({ eventId }) => logOf(id, eventId));
  const responses = (await Promise.all(logs)).map(([attempt]) => attempt?.response);
  const start = { contentType: null, body: ".", truncated: true };
  expect(responses).toEqual([start, ...Array(11).fill(null)]);
});

test("what a receiver echoes is encrypted, and erased with the lead", async () => {
  const logged = vi.spyOn(console, "log");
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const { id } = await subscribe(workspaceId, { url: subscriberUrl("echo-500") });
  const person = { name: "Zoë Canari", email: "canari@example.com", phone: "+33639980042" };
  const leadId = await recordLead(workspaceId, person);
  await expect.poll(async () => (await deliveryTo(id)).lastStatus, { timeout: 5_000 }).toBe(500);
  const { eventId } = await deliveryTo(id);
  const [attempt] = await logOf(id, eventId);
  expect(attempt?.response?.body).toContain(person.email);

  const stored = await storedOf(id);
  expect(stored).toHaveLength(2);
  for (const [row] of stored) {
    expect(row).toContain("500");
    for (const personal of ["canari", "Canari", "39980042"]) expect(row).not.toContain(personal);
  }
  const lines = logged.mock.calls.flat().join("\n");
  expect(lines).toContain("attempt_failed");
  expect(lines).not.toContain("canari");

  await Platform.eraseLeads({ workspaceId, ids: [leadId] });
  expect(await storedOf(id)).toEqual([[], []]);
});

/** The rows of deliveries and attempts, as text. */
async function storedOf(id: string): Promise<string[][]> {
  const tables = ["deliveries", "attempts"].map((table) =>
    env.DB.prepare(
      `SELECT *, CAST(response AS TEXT) AS text FROM ${table} WHERE subscription_id = ?`,
    ).bind(id),
  );
  return (await env.DB.batch(tables)).map(({ results }) =>
    results.map((row) => JSON.stringify(row)),
  );
}

test("sending again keeps what was said before, and lowers no count", async () => {
  const { id, eventId } = await withOwed("says-200", { says: "thanks", type: "text/plain" });
  await deliver(id);
  const expectSent = async (attempts: number, state: string) => {
    const { days } = await Platform.readWebhook({ webhookId: id });
    expect(days.at(-1)).toMatchObject({ delivered: 1, pending: 0, attempts });
    const { items } = await Platform.listDeliveries({ webhookId: id });
    expect(items).toMatchObject([{ state, attempts }]);
    const thanked = { status: 200, response: { body: "thanks" } };
    const log = await logOf(id, eventId);
    expect(log).toMatchObject(Array(attempts).fill(thanked));
    expect(log).toEqual(log.toSorted((a, b) => a.at.localeCompare(b.at)));
  };
  for (let sent = 1; sent <= 3; sent++) {
    await expectSent(sent, "delivered");
    await redeliver(id, [eventId], Date.now() + sent * 2_000);
    await expectSent(sent, "pending");
    await deliver(id, sent * 2_000 + 500);
  }
  await expectSent(4, "delivered");
});
