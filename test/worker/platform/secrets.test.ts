import { env, exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { afterEach, describe, expect, test, vi } from "vitest";
import { commit, openDatabase } from "../../../src/db/client.ts";
import { earlierSecrets } from "../../../src/db/schema.ts";
import { open, parseEncryptionKeys } from "../../../src/encryption/seal.ts";
import { sweep } from "../../../src/sweep.ts";
import {
  countUnderOtherKeys,
  listUnderOtherKeys,
  updateSecret,
} from "../../../src/webhooks/reseal.ts";
import { ROTATION_MS, rotateSecret } from "../../../src/webhooks/rotation.ts";
import { errorOf, openWorkspace } from "../../support/api.ts";
import {
  announceLeads,
  consumeFor,
  createWorkspace,
  db,
  expectedSignatures,
  isolated,
  jumpTo,
  receivedBy,
  setSubscription,
  subscribe,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { lossyDatabase } from "../../support/lost-reply.ts";

const { Platform } = exports;
const DAY_SECONDS = 86_400;
const KEYS = env.ENCRYPTION_KEYS;
const NEW_KEYS = `next:${btoa("x".repeat(32))},${KEYS}`;

afterEach(() => void vi.useRealTimers());

/** Delivers one more event to the subscription, and returns what it received. */
async function deliver(workspaceId: string, subscription: { id: string; url: string }) {
  await announceLeads(workspaceId, 1, Date.now());
  await consumeFor([subscription.id], isolated().env);
  const received = await receivedBy(subscription);
  const last = received.at(-1);
  if (!last) throw new Error("nothing was received");
  return last;
}

/** Expects a delivery to be signed with these secrets, in order. */
async function expectSigned(
  { headers, body }: Awaited<ReturnType<typeof deliver>>,
  secrets: string[],
) {
  const timestamp = headers["webhook-timestamp"] ?? "";
  const all = await Promise.all(
    secrets.map((one) => expectedSignatures(one, headers["webhook-id"] ?? "", timestamp, body)),
  );
  const service = [`t=${timestamp}`, ...all.map((each) => each.service.split(",")[1])].join();
  expect(headers["x-service-signature"]).toBe(service);
  expect(headers["webhook-signature"]).toBe(all.map(({ standard }) => standard).join(" "));
}

function earlierOf(id: string) {
  return db.select().from(earlierSecrets).where(sql`subscription_id = ${id}`);
}

describe("endSecretOverlap", () => {
  test("leaves the newest secret alone", async () => {
    const workspaceId = await createWorkspace();
    const subscription = await subscribe(workspaceId);
    const { id } = subscription;
    const shown = async () => (await Platform.readWebhook({ webhookId: id })).overlapEndsAt;
    expect(await shown()).toBeNull();
    const { secret, overlapEndsAt } = await Platform.rotateWebhookSecret({ webhookId: id });
    expect(await shown()).toBe(overlapEndsAt);
    expect(await Platform.endSecretOverlap({ webhookId: id })).toEqual({});
    expect(await shown()).toBeNull();
    await expectSigned(await deliver(workspaceId, subscription), [secret]);
    expect(await Platform.endSecretOverlap({ webhookId: id })).toEqual({});
  });
});

describe("rotateWebhookSecret", () => {
  test("returns a new secret, and from then on deliveries are signed with both, the old one first", async () => {
    const workspaceId = await createWorkspace();
    const subscription = await subscribe(workspaceId);
    const { id } = subscription;
    const { secret, overlapEndsAt } = await Platform.rotateWebhookSecret({ webhookId: id });
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(Date.parse(overlapEndsAt ?? "")).toBeCloseTo(Date.now() + DAY_SECONDS * 1000, -4);
    await expectSigned(await deliver(workspaceId, subscription), [subscription.secret, secret]);
  });

  test("waits for a dispatch that may still sign with the old secret alone", async () => {
    const { id } = await subscribe(await createWorkspace());
    const now = Date.now();
    await setSubscription(id, { heldBy: "a dispatch", heldUntil: now + 20_000 });
    const startedAt = performance.now();
    await rotateSecret(db, KEYS, id, 60, now);
    expect(performance.now() - startedAt).toBeGreaterThan(ROTATION_MS - 50);
  });

  test("counts the overlap from when it returns, at most two seconds after it was called", async () => {
    const workspaceId = await createWorkspace();
    const subscription = await subscribe(workspaceId);
    const now = Date.now();
    jumpTo(now);
    const { secret } = await rotateSecret(db, KEYS, subscription.id, 1, now - 2_500);
    await expectSigned(await deliver(workspaceId, subscription), [subscription.secret, secret]);
  });

  test("leaves only the new secret when the overlap has ended, and the sweep deletes the old one", async () => {
    const workspaceId = await createWorkspace();
    const subscription = await subscribe(workspaceId);
    const { id } = subscription;
    const long = Date.now() - 3_600_000;
    const { secret } = await rotateSecret(db, KEYS, id, 3_590, long);
    await expectSigned(await deliver(workspaceId, subscription), [secret]);
    expect(await earlierOf(id)).toHaveLength(1);
    await sweep(isolated().env, Date.now());
    expect(await earlierOf(id)).toEqual([]);
  });

  test("with an overlap of 0 ends every earlier secret immediately", async () => {
    const workspaceId = await createWorkspace();
    const subscription = await subscribe(workspaceId);
    const webhookId = subscription.id;
    await Platform.rotateWebhookSecret({ webhookId });
    const { secret, overlapEndsAt } = await Platform.rotateWebhookSecret({
      webhookId,
      overlapSeconds: 0,
    });
    expect(overlapEndsAt).toBeNull();
    await expectSigned(await deliver(workspaceId, subscription), [secret]);
    expect(await earlierOf(webhookId)).toEqual([]);
  });

  test("called again after a lost answer, keeps the secret that the receiver knows", async () => {
    const workspaceId = await createWorkspace();
    const subscription = await subscribe(workspaceId);
    const webhookId = subscription.id;
    const lost = await Platform.rotateWebhookSecret({ webhookId, overlapSeconds: 60 });
    const { secret } = await Platform.rotateWebhookSecret({ webhookId, overlapSeconds: 120 });
    const { headers, body } = await deliver(workspaceId, subscription);
    const [eventId = "", timestamp = ""] = [headers["webhook-id"], headers["webhook-timestamp"]];
    const all = [subscription.secret, lost.secret, secret].map(async (one) => {
      const { standard } = await expectedSignatures(one, eventId, timestamp, body);
      return standard;
    });
    const sent = headers["webhook-signature"]?.split(" ");
    expect(sent?.toSorted()).toEqual((await Promise.all(all)).toSorted());
  });

  test("takes effect once, even if the database's reply is lost", async () => {
    const { id } = await subscribe(await createWorkspace());
    const DB = lossyDatabase("reply");
    const { secret } = await rotateSecret(openDatabase(DB), KEYS, id, 60, Date.now());
    expect(await earlierOf(id)).toHaveLength(1);
    const { sealedSecret } = await subscriptionRow(id);
    expect(await open(parseEncryptionKeys(KEYS), id, sealedSecret)).toBe(secret);
  });

  test.each([60, 0])(
    "does not override a later one, with an overlap of %i, if the database's reply is lost",
    async (overlap) => {
      const { id } = await subscribe(await createWorkspace());
      let later = "";
      const DB = lossyDatabase("reply", async () => {
        later = (await rotateSecret(db, KEYS, id, overlap, Date.now())).secret;
      });
      const { secret } = await rotateSecret(openDatabase(DB), KEYS, id, 60, Date.now());
      const ring = parseEncryptionKeys(KEYS);
      expect(await open(ring, id, (await subscriptionRow(id)).sealedSecret)).toBe(later);
      const earlier = await earlierOf(id);
      const opened = await Promise.all(earlier.map((one) => open(ring, id, one.sealedSecret)));
      expect(opened).toHaveLength(overlap === 0 ? 0 : 2);
      expect(opened.includes(secret)).toBe(overlap !== 0);
    },
  );

  test("is refused while four earlier secrets are valid, and changes nothing, even if a reply is lost", async () => {
    const { id } = await subscribe(await createWorkspace());
    for (let i = 0; i < 4; i++) await rotateSecret(db, KEYS, id, 60, Date.now());
    const before = await subscriptionRow(id);
    const DB = openDatabase(lossyDatabase("reply"));
    expect(await errorOf(rotateSecret(DB, KEYS, id, 60, Date.now()))).toContain("overlapSeconds 0");
    expect(await subscriptionRow(id)).toEqual(before);
  });

  test("affects only this subscription, and stores no secret in plain text", async () => {
    const workspaceId = await createWorkspace();
    const [subscription, other] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    const before = await subscriptionRow(other.id);
    const { secret } = await Platform.rotateWebhookSecret({ webhookId: subscription.id });
    expect(await subscriptionRow(other.id)).toEqual(before);
    const stored = JSON.stringify([
      await subscriptionRow(subscription.id),
      await earlierOf(subscription.id),
    ]);
    expect(stored).not.toContain(secret);
    expect(stored).not.toContain(subscription.secret);
  });

  test.each([
    ["webhookId", {}],
    ["overlapSeconds", { overlapSeconds: 7 * DAY_SECONDS + 1 }],
    ["overlapSeconds", { overlapSeconds: -1 }],
  ])("says that %s is wrong", async (parameter, input) => {
    const call = Platform.rotateWebhookSecret({ webhookId: "whk_none", ...input });
    expect(await errorOf(call)).toContain(parameter);
  });

  test("does not appear in the client's own list", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await subscribe(workspaceId);
    const before = await api.get("/v1/webhooks");
    await Platform.rotateWebhookSecret({ webhookId: id });
    expect((await api.get("/v1/webhooks")).body).toEqual(before.body);
  });
});

const FIRST = { id: "", sealedSecret: "" };

describe("a reseal", () => {
  test("also reseals the earlier secrets", async () => {
    const { id, secret } = await subscribe(await createWorkspace());
    const rotated = await rotateSecret(db, KEYS, id, 600, Date.now());
    const ring = parseEncryptionKeys(NEW_KEYS);
    const secrets = await listUnderOtherKeys(db, "next", FIRST, 1_000);
    expect(await commit(db, countUnderOtherKeys("next"))).toBe(secrets.length);
    const own = secrets.filter((one) => one.id === id);
    expect(own).toHaveLength(2);
    const opened = await Promise.all(own.map((one) => open(ring, id, one.sealedSecret)));
    expect(opened.toSorted()).toEqual([secret, rotated.secret].toSorted());
  });

  test("that reads before a rotation and writes after it never restores the old secret, and reseals both", async () => {
    const { id, secret } = await subscribe(await createWorkspace());
    const read = (await listUnderOtherKeys(db, "next", FIRST, 1_000)).filter(
      (one) => one.id === id,
    );
    const rotated = await rotateSecret(db, KEYS, id, 600, Date.now());
    const [first] = read;
    if (!first) throw new Error("the secret was not read");
    await commit(db, updateSecret(first, `next.${first.sealedSecret}`));
    const ring = parseEncryptionKeys(KEYS);
    expect(await open(ring, id, (await subscriptionRow(id)).sealedSecret)).toBe(rotated.secret);
    const [earlier] = await earlierOf(id);
    expect(earlier?.sealedSecret).toBe(`next.${first.sealedSecret}`);
    expect(await open(ring, id, first.sealedSecret)).toBe(secret);
  });
});
