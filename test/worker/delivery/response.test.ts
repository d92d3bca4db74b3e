import { env } from "cloudflare:workers";
import { and, eq, isNotNull } from "drizzle-orm";
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { RESPONSES_PER_DAY } from "../../../src/contract/limits.ts";
import { dayOf } from "../../../src/contract/time.ts";
import { attempts } from "../../../src/db/schema.ts";
import {
  HEADERS_KEPT_BYTES,
  openResponse,
  RESPONSE_KEPT_BYTES,
  readResponse,
  SECRETS_MAX,
  type StoredResponse,
  sealResponse,
} from "../../../src/delivery/response.ts";
import { createSender } from "../../../src/delivery/send.ts";
import { importKey } from "../../../src/encryption/seal.ts";
import { findFields } from "../../../src/subscriptions/fields.ts";
import { endOverlap, rotateSecret } from "../../../src/subscriptions/rotation.ts";
import { Platform, recordLead } from "../../support/api.ts";
import {
  allowProbes,
  announceLeads,
  answered,
  DAY_MS,
  deliveryTo,
  dispatchAt,
  owed,
  postOf,
  receivedBy,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { db } from "../../support/placement.ts";
import { damageLead } from "../../support/record.ts";

/** Makes the attempts that are due by now, or in `laterMs`, over the network. */
function deliver(id: string, laterMs = 0) {
  return dispatchAt(() => Date.now() + laterMs, [id], createSender(env).attempt);
}

/** A subscriber that behaves so, and what was announced to it. */
async function withOwed(behaviour: string, query: Record<string, string> = {}, count = 1) {
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const url = `${subscriberUrl(behaviour)}&${new URLSearchParams(query)}`;
  const { id } = await subscribe(workspaceId, { url });
  const drafts = await announceLeads(workspaceId, count, Date.now());
  return { workspaceId, id, url, drafts, eventId: drafts[0]?.id ?? "" };
}

test("The health of a subscription has the response to the attempt that failed last", async () => {
  const { id, workspaceId } = await withOwed("says-401", { says: "who are you?" });
  await deliver(id);
  const lastFailure = { status: 401, response: { body: "who are you?", truncated: false } };
  expect(await Platform.readWebhook({ webhookId: id })).toMatchObject({ lastFailure });
  expect((await Platform.listWebhooks({ workspaceId })).items).toMatchObject([{ lastFailure }]);
  // Of a later attempt, no response was stored.
  await setDeliveries(id, { lastAt: Date.now() + 1_000 });
  expect(await Platform.readWebhook({ webhookId: id })).toMatchObject({
    lastFailure: { status: 401, response: null },
  });
});

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

test("The log of a failed attempt has headers, status, duration and the response without cookies", async () => {
  const [says, type] = ['{"error":"unknown field"}', "application/json"];
  const { received, ...attempt } = await attemptAt("says-422", {
    ...{ says, type, headers: '{"X-Trace":"t-1","Set-Cookie":"session=1"}' },
  });
  const headers = { "content-type": type, "x-trace": "t-1" };
  const response = { headers, body: says, truncated: false };
  expect(attempt).toMatchObject({ outcome: "answered", status: 422, response });
  expect(Object.keys(attempt.response?.headers ?? {})).not.toContain("set-cookie");
  expectSent(attempt.request?.headers, received?.headers);
  const success = await attemptAt("says-200", { says: "thanks" });
  expect(success).toMatchObject({ status: 200, durationMs: expect.any(Number), response: null });
  expectSent(success.request?.headers, success.received?.headers);
});

/** Expects the log to show the headers that were received. */
function expectSent(shown: Record<string, string> = {}, received: Record<string, string> = {}) {
  const sent = Object.entries(shown).map(([name, value]) => [name.toLowerCase(), value]);
  expect(sent.map(([name]) => name)).toEqual(
    expect.arrayContaining([
      ...["content-type", "user-agent", "webhook-id", "webhook-signature", "webhook-timestamp"],
      ...["x-service-signature", "x-service-webhook"],
    ]),
  );
  expect(received).toMatchObject(Object.fromEntries(sent));
}

test("Attempts show the signatures of their time, unless the secret was rotated since", async () => {
  const { id, eventId, url } = await withOwed("says-500", { says: "no" });
  const headersOf = async () =>
    (await logOf(id, eventId)).map(({ request }) => request?.headers["X-Service-Signature"]);
  await deliver(id);
  const [first] = await headersOf();
  expect(first).toBe((await receivedBy({ url }))[0]?.headers["x-service-signature"]);
  const at = Date.now() - 60_000;
  await setAttempts(id, { at });
  await rotateSecret(db, env.ENCRYPTION_KEYS, id, 3_600, at + 10_000);
  await allowProbes(id);
  await setDeliveries(id, { dueAt: Date.now() });
  await deliver(id);
  const both = (await receivedBy({ url }))[1]?.headers["x-service-signature"];
  expect(both).toMatch(/^t=\d+,v1=\w+,v1=\w+$/);
  expect(await headersOf()).toEqual([undefined, both]);
});

test("An attempt after the grace period of an earlier secret shows the signature that it had", async () => {
  const { id, eventId, url } = await withOwed("says-500", { says: "no" });
  await rotateSecret(db, env.ENCRYPTION_KEYS, id, 1, Date.now() - 10_000);
  await deliver(id);
  const [attempt] = await logOf(id, eventId);
  const sent = (await receivedBy({ url }))[0]?.headers["x-service-signature"];
  expect(attempt?.request?.headers["X-Service-Signature"]).toBe(sent);
});

test("An attempt during an overlap shows both signatures, even once the overlap was ended", async () => {
  const { id, eventId, url } = await withOwed("says-500", { says: "no" });
  await rotateSecret(db, env.ENCRYPTION_KEYS, id, 3_600, Date.now() - 10_000);
  await deliver(id);
  await Platform.endSecretOverlap({ webhookId: id });
  const [attempt] = await logOf(id, eventId);
  const sent = (await receivedBy({ url }))[0]?.headers["x-service-signature"];
  expect(sent).toMatch(/^t=\d+,v1=\w+,v1=\w+$/);
  expect(attempt?.request?.headers["X-Service-Signature"]).toBe(sent);
});

test.each<[string, (id: string, leadId: string) => Promise<unknown>]>([
  ["secret", (id) => setSubscription(id, { sealedSecret: "test.damaged" })],
  ["lead", (_, leadId) => damageLead(leadId)],
])(
  "An attempt is shown without its signature once its %s cannot be decrypted",
  async (_, damage) => {
    const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
    const { id } = await subscribe(workspaceId, { url: subscriberUrl("status-500") });
    const leadId = await recordLead(workspaceId);
    await expect.poll(async () => (await deliveryTo(id)).lastStatus).toBe(500);
    await damage(id, leadId);
    const [attempt] = await logOf(id, (await deliveryTo(id)).eventId);
    expect(attempt?.request?.headers).toMatchObject({ "X-Service-Webhook": id });
    expect(attempt?.request?.headers["X-Service-Signature"]).toBeUndefined();
  },
);

const rotate = (id: string, at: number) => rotateSecret(db, env.ENCRYPTION_KEYS, id, 3_600, at);

test.each<[what: string, change: (id: string, at: number) => Promise<unknown>]>([
  ["a rotation", rotate],
  [
    "the end of an overlap",
    async (id, at) => {
      await rotate(id, at - 10_000);
      const { sealedSecret } = await findFields(db, id);
      await endOverlap(db, id, sealedSecret, at);
    },
  ],
])(
  "An attempt in the two seconds after %s shows no signature, as it may have had either",
  async (...row) => {
    const [, change] = row;
    const { id, eventId } = await withOwed("says-500", { says: "no" });
    await deliver(id);
    const at = Date.now();
    await change(id, at);
    const isSigned = async (afterMs: number) => {
      await setAttempts(id, { at: at + afterMs });
      const [attempt] = await logOf(id, eventId);
      expect(attempt?.request?.headers).toMatchObject({ "X-Service-Webhook": id });
      return "X-Service-Signature" in (attempt?.request?.headers ?? {});
    };
    expect([await isSigned(1_999), await isSigned(2_000)]).toEqual([false, true]);
  },
);

const setAttempts = (id: string, changed: Partial<typeof attempts.$inferInsert>) =>
  db.update(attempts).set(changed).where(eq(attempts.subscriptionId, id));

/** A signal that ends no read. */
const NEVER = new AbortController().signal;
/** As much of a text as is kept. */
const FULL = "x".repeat(RESPONSE_KEPT_BYTES);
test.each([
  ["text", "text/html; charset=utf-8", "<b>é</b>", "<b>é</b>"],
  ["problem details", "application/problem+json", "{}", "{}"],
  ["XML", "application/xml", "<a/>", "<a/>"],
  ["text without a type", "", "no", "no"],
  ["empty", "text/plain", "", ""],
  ["text of a long type", `text/plain; of=${"x".repeat(300)}`, "no", "no"],
  ["text in an unknown charset", "text/plain; charset=klingon", "no", "no"],
  ["bytes", "application/octet-stream", "text", "text"],
  ["text of 1,024 bytes", "text/plain", FULL, FULL],
  ["longer text", "text/plain", `${FULL.slice(1)}é`, FULL.slice(1), true],
])("of a response that is %s, the body is stored", async (...row) => {
  const [, type, says, body, truncated = false] = row;
  const response = new Response(new TextEncoder().encode(says));
  if (type !== "") response.headers.set("Content-Type", type);
  const headers = type === "" ? {} : { "content-type": type.slice(0, 200) };
  const read = await readResponse(response, NEVER);
  expect(read).toEqual({ headers, body, truncated });
});

test("of a response that never ends, the first 1,024 bytes are stored, in whole characters", async () => {
  const startedAt = Date.now();
  const { response } = await attemptAt("flood-500", { type: "text/plain" });
  const body = "é".repeat(RESPONSE_KEPT_BYTES / 2);
  const headers = { "content-type": "text/plain" };
  expect(response).toMatchObject({ headers, body, truncated: true });
  expect((await attemptAt("flood-200", { type: "text/plain" })).status).toBe(200);
  expect(Date.now() - startedAt).toBeLessThan(5_000);
});

const MANY_HEADERS = JSON.stringify(
  Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`a-${i}`, "x".repeat(120)])),
);

test.each([
  ["control characters", "\x01", "text/plain"],
  ["quotes", '"', "text/plain"],
  ["another charset", "é", "text/plain; charset=windows-1252"],
  ["bytes that are no UTF-8", "\x80", "text/plain; charset=utf-16"],
  ["a type of quotes", "no", `text/plain; ${'"'.repeat(400)}`],
  ["many headers", "no", "text/plain", MANY_HEADERS],
])("what is stored of a response is bounded after encoding: %s", async (...row) => {
  const [, says, type, headers = "{}"] = row;
  const { id, eventId } = await withOwed("says-500", {
    ...{ says, type, headers },
    times: String(RESPONSE_KEPT_BYTES),
  });
  await deliver(id);
  const [attempt] = await logOf(id, eventId);
  expect(attempt?.response?.headers["content-type"]).toMatch(/^text/);
  expect(attempt?.response?.truncated).toBe(true);
  const sizes = "SELECT octet_length(response) AS bytes FROM attempts WHERE subscription_id = ?";
  const bytes = await env.DB.prepare(sizes).bind(id).first<number>("bytes");
  // The names of the fields, beside headers and body; and what encryption adds.
  expect(bytes).toBeLessThan(RESPONSE_KEPT_BYTES + HEADERS_KEPT_BYTES + 50 + 40);
  // Its delivery is in a table without rowids, which is read whole: nothing of the answer is there.
  const { results } = await env.DB.prepare("SELECT * FROM deliveries WHERE subscription_id = ?")
    .bind(id)
    .run();
  expect(results).toHaveLength(1);
  for (const row of results)
    for (const value of Object.values(row)) expect(String(value).length).toBeLessThan(40);
});

test("of a response, headers are kept that take 1,024 bytes in JSON, and none beyond", async () => {
  const namesWith = async (bytes: number) => {
    const headers = new Headers();
    // `{"x-0":"…"}` has 10 bytes beside the value.
    for (let i = 0; i < 9; i++) headers.set(`x-${i}`, "v".repeat(90));
    headers.set("x-9", "v".repeat(bytes - 910));
    const response = new Response(null, { headers });
    return Object.keys((await readResponse(response, NEVER)).headers);
  };
  expect(await namesWith(HEADERS_KEPT_BYTES)).toContain("x-9");
  expect(await namesWith(HEADERS_KEPT_BYTES + 1)).not.toContain("x-9");
});

test("the outcome is known before the body has come", async () => {
  const { drafts, ...about } = await withOwed("endless-500");
  const post = await postOf(about, drafts, Date.now());
  const { storedResponse, ...outcome } = await createSender(env).attempt(...post);
  expect(outcome).toEqual(answered(500));
  expect(await Promise.race([storedResponse, "still coming"])).toBe("still coming");
  await storedResponse;
});

test("the body of a success is not waited for", async () => {
  const { drafts, ...about } = await withOwed("endless-200");
  const post = await postOf(about, drafts, Date.now());
  // A body that does not end is given up by a timer, and none runs out here.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  expect(await createSender(env).attempt(...post)).toEqual(answered(200));
});

describe("The responses that are stored for a subscription in a day", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  /** An attempt that fails, with a response to store. */
  const rejected = async () => ({ ...answered(400), storedResponse: Promise.resolve("00") });

  /** A subscription with pending events, for which all responses but one are stored on the day of `NOW`. */
  async function withOneLeft(count: number, now = NOW) {
    const subscription = await owed(count, now);
    const dailyCounts = { [dayOf(NOW)]: { responses: RESPONSES_PER_DAY - 1 } };
    await setSubscription(subscription.id, { dailyCounts });
    return subscription;
  }

  const countStored = async (id: string) => {
    const isStored = and(eq(attempts.subscriptionId, id), isNotNull(attempts.response));
    return (await db.select().from(attempts).where(isStored)).length;
  };

  test("are no more than the maximum, even within one dispatch", async () => {
    const { id } = await withOneLeft(3);
    await dispatchAt(NOW, [id], rejected);
    expect(await statesOf(id)).toEqual({ pending: 3 });
    expect(await countStored(id)).toBe(1);
  });

  test("leave those of the next day their own maximum", async () => {
    const { id } = await withOneLeft(3, NOW + DAY_MS);
    await dispatchAt(NOW + DAY_MS, [id], rejected);
    expect(await countStored(id)).toBe(3);
  });

  test("are used up by stored responses alone", async () => {
    const { id } = await owed(3, NOW);
    let posts = 0;
    await dispatchAt(NOW, [id], async () => (++posts === 1 ? rejected() : answered(400)));
    expect(posts).toBe(3);
    const { dailyCounts } = await subscriptionRow(id);
    expect(dailyCounts[dayOf(NOW)]).toMatchObject({ responses: 1, "lead.created failed": 3 });
  });
});

test("the body of a success is cancelled, so that its connection is free", async () => {
  const now = Date.now();
  const subscription = await owed(1, now);
  const cancel = vi.fn();
  const endless = new ReadableStream({ cancel });
  vi.spyOn(globalThis, "fetch").mockResolvedValue(new Response(endless));
  const request = await postOf(subscription, subscription.drafts, now);
  expect(await createSender(env).attempt(...request)).toMatchObject({ status: 200 });
  expect(cancel).toHaveBeenCalledTimes(1);
});

/** The stored response to a request with these headers. */
async function storedWith(
  response: Partial<StoredResponse>,
  sent: Record<string, string>,
  clue: Parameters<typeof sealResponse>[2] = null,
) {
  const key = await importKey(crypto.getRandomValues(new Uint8Array(32)));
  const delivery = { subscriptionId: "whk_1", eventId: "evt_1" };
  const whole = { headers: {}, body: "", truncated: false, ...response };
  const sealed = await sealResponse(delivery, Promise.resolve(whole), clue, async () => key, sent);
  return openResponse(key, delivery, sealed);
}

test("four characters of a value that is cut off are masked", async () => {
  const stored = await storedWith({ body: "to sesa", truncated: true }, { "X-One": "sesame" });
  expect(stored).toMatchObject({ body: "to ***" });
});

test("a value of four characters is masked, and one of three is not", async () => {
  const stored = await storedWith({ body: "abcd xyz" }, { "X-One": "abcd", "X-Other": "xyz" });
  expect(stored).toMatchObject({ body: "*** xyz" });
});

test.each([
  [" ", "to ***"],
  [",", "to ***"],
  [";", "to ***"],
  ["=", "to ***"],
  [".", "to sesame"],
])("of a value with %j, a response is stored as: %s", async (separator, body) => {
  const sent = { "X-One": `open${separator}sesame` };
  expect(await storedWith({ body: "to sesame" }, sent)).toMatchObject({ body });
});

test.each([
  ["Bearer", "Bearer webhooks/1"],
  ["basic", "basic webhooks/1"],
  ["Token", "Token webhooks/1"],
  ["Digest", "Digest webhooks/1"],
  ["Sesame", "*** webhooks/1"],
])(
  "after the scheme %s and a header of ours, a response is stored as: %s",
  async (scheme, body) => {
    const sent = { Authorization: `${scheme} sesame`, "User-Agent": "webhooks/1" };
    expect(await storedWith({ body: `${scheme} webhooks/1` }, sent)).toMatchObject({ body });
  },
);

test.each([
  ["Basic", "sesame", "pass=***"],
  ["basic", "sesame", "pass=***"],
  ["Basic", "sesame:street", "pass=***"],
  ["Bearer", "sesame", "pass=sesame"],
])("with the scheme %s and the password %s, a response is stored as: %s", async (...row) => {
  const [scheme, password, body] = row;
  const sent = { Authorization: `${scheme} ${btoa(`ada:${password}`)}` };
  expect(await storedWith({ body: `pass=${password}` }, sent)).toMatchObject({ body });
});

test.each(["location", "error"])("a secret in the %s of a response is masked", async (name) => {
  const stored = await storedWith({}, { "X-One": "sesame" }, { [name]: "to sesame" });
  expect(stored).toMatchObject({ [name]: "to ***" });
});

test("a secret that begins with another one is masked whole", async () => {
  const sent = { "X-One": "sesame", "X-Other": "sesame-and-more" };
  expect(await storedWith({ body: "sesame-and-more" }, sent)).toMatchObject({ body: "***" });
});

test("a secret is masked whole, wherever another one overlaps with it", async () => {
  const sent = { "X-One": "sesame-street", "X-Guess": '"X-One":"s', "X-Last": 'street","X-Last"' };
  const body = '{"X-One":"sesame-street","X-Last":""} sesame-street';
  expect(await storedWith({ body }, sent)).toMatchObject({ body: '{***:""} ***' });
});

test("each part of a response that repeats a secret is masked, and no other", async () => {
  const word = fc.string({ unit: fc.constantFrom("a", "b"), minLength: 4, maxLength: 12 });
  const text = fc.string({ unit: fc.constantFrom("a", "b", "."), maxLength: 60 });
  const isMasked = (body: string, secrets: string[], at: number) =>
    secrets.some((secret) => {
      for (let start = Math.max(0, at - secret.length + 1); start <= at; start++) {
        const repeated = body.slice(start, start + secret.length);
        const isCut = start + repeated.length === body.length && repeated.length >= 4;
        if (repeated === secret || (isCut && secret.startsWith(repeated))) return true;
      }
      return false;
    });
  await fc.assert(
    fc.asyncProperty(word, word, text, async (one, other, body) => {
      const marked = [...body].map((character, at) =>
        isMasked(body, [one, other], at) ? "*" : character,
      );
      const stored = await storedWith({ body }, { "X-One": one, "X-Other": other });
      expect(stored?.body).toBe(marked.join("").replaceAll(/\*+/g, "***"));
    }),
    { numRuns: 300, seed: 1 },
  );
});

test("a response is masked whole if the custom headers have more words than are sought in it", async () => {
  const storedBeside = async (count: number) => {
    const words = Array.from({ length: count }, (_, i) => `word${i}`);
    const response = { headers: { "x-a": "b" }, body: "to word0", truncated: false };
    const sent = { "X-Words": words.join(" ") };
    return storedWith(response, sent, { location: "https://other.example/" });
  };
  // The value is sought in two forms, because URLs escape its spaces.
  expect(await storedBeside(SECRETS_MAX - 2)).toEqual({
    headers: { "x-a": "b" },
    body: "to ***",
    truncated: false,
    location: "https://other.example/",
  });
  expect(await storedBeside(SECRETS_MAX - 1)).toEqual({
    headers: { "x-a": "***" },
    body: "***",
    truncated: false,
    location: "***",
  });
});

test("what a receiver echoes is encrypted, and erased with the lead", async () => {
  const logged = vi.spyOn(console, "log");
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const { id } = await subscribe(workspaceId, { url: subscriberUrl("echo-500") });
  const person = { name: "Zoë Canari", email: "canari@example.com", phone: "+33639980042" };
  const leadId = await recordLead(workspaceId, person);
  await expect.poll(async () => (await deliveryTo(id)).lastStatus).toBe(500);
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
  const columns = { deliveries: "*", attempts: "*, CAST(response AS TEXT) AS text" };
  const tables = Object.entries(columns).map(([table, selected]) =>
    env.DB.prepare(`SELECT ${selected} FROM ${table} WHERE subscription_id = ?`).bind(id),
  );
  return (await env.DB.batch(tables)).map(({ results }) =>
    results.map((row) => JSON.stringify(row)),
  );
}
