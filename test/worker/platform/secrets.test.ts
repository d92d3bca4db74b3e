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
const KEYS = env.ENCRYPTION_KEYS;
const NEW_KEYS = `next:${btoa("x".repeat(32))},${KEYS}`;

afterEach(() => void vi.useRealTimers());

/** Expects the next delivery to be signed with these secrets, in order. */
async function expectSigned(workspaceId: string, subscription: Subscription, secrets: string[]) {
  await announceLeads(workspaceId, 1, Date.now());
  await consumeFor([subscription.id], isolated().env);
  const { headers = {}, body = "" } = (await receivedBy(subscription)).at(-1) ?? {};
  const timestamp = headers["webhook-timestamp"] ?? "";
  const all = await Promise.all(
    secrets.map((one) => expectedSignatures(one, headers["webhook-id"] ?? "", timestamp, body)),
  );
  // The newest comes last; earlier ones have no order.
  const inOrder = (signed: (string | undefined)[]) => [
    ...signed.slice(0, -1).sort(),
    signed.at(-1),
  ];
  const [at, ...service] = headers["x-service-signature"]?.split(",") ?? [];
  expect(at).toBe(`t=${timestamp}`);
  expect(inOrder(service)).toEqual(inOrder(all.map((each) => each.service.split(",")[1])));
  const standard = headers["webhook-signature"]?.split(" ") ?? [];
  expect(inOrder(standard)).toEqual(inOrder(all.map((each) => each.standard)));
}

type Subscription = Awaited<ReturnType<typeof subscribe>>;

/** A workspace with a subscription. */
async function openSubscribed() {
  const workspaceId = await createWorkspace();
  const subscription = await subscribe(workspaceId);
  const { id } = subscription;
  const signedWith = (...secrets: string[]) => expectSigned(workspaceId, subscription, secrets);
  return { workspaceId, id, secret: subscription.secret, signedWith };
}

/** The secret that a subscription has now. */
async function secretOf(id: string) {
  return open(parseEncryptionKeys(KEYS), id, (await subscriptionRow(id)).sealedSecret);
}

function earlierOf(id: string) {
  return db.select().from(earlierSecrets).where(sql`subscription_id = ${id}`);
}

describe("rotateWebhookSecret", () => {
  test("returns a new secret; deliveries are signed with both, the old one first, until the overlap is ended", async () => {
    const { id: webhookId, secret: old, signedWith } = await openSubscribed();
    const shown = async () => (await Platform.readWebhook({ webhookId })).overlapEndsAt;
    expect(await shown()).toBeNull();
    const { secret, overlapEndsAt } = await Platform.rotateWebhookSecret({ webhookId });
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(Date.parse(overlapEndsAt ?? "")).toBeCloseTo(Date.now() + 86_400_000, -4);
    expect(await shown()).toBe(overlapEndsAt);
    await signedWith(old, secret);
    for (let twice = 0; twice < 2; twice++) {
      expect(await Platform.endSecretOverlap({ webhookId })).toEqual({});
      expect(await shown()).toBeNull();
      await signedWith(secret);
    }
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
    const { id, secret: old, signedWith } = await openSubscribed();
    const now = Date.now();
    jumpTo(now);
    const { secret } = await rotateSecret(db, KEYS, id, 1, now - 2_500);
    await signedWith(old, secret);
  });

  test("leaves only the new secret when the overlap has ended, and the sweep deletes the old one", async () => {
    const { id, signedWith } = await openSubscribed();
    const { secret } = await rotateSecret(db, KEYS, id, 3_590, Date.now() - 3_600_000);
    await signedWith(secret);
    expect(await earlierOf(id)).toHaveLength(1);
    await sweep(isolated().env, Date.now());
    expect(await earlierOf(id)).toEqual([]);
  });

  test("keeps the secret that the receiver knows, though called again, until an overlap of 0", async () => {
    const { id: webhookId, secret: known, signedWith } = await openSubscribed();
    const rotate = (overlapSeconds: number) =>
      Platform.rotateWebhookSecret({ webhookId, overlapSeconds });
    const lost = await rotate(60);
    const seen = await rotate(120);
    await signedWith(known, lost.secret, seen.secret);
    const { secret, overlapEndsAt } = await rotate(0);
    expect(overlapEndsAt).toBeNull();
    await signedWith(secret);
    expect(await earlierOf(webhookId)).toEqual([]);
  });

  test("takes effect once, even if the database's reply is lost", async () => {
    const { id } = await subscribe(await createWorkspace());
    const DB = lossyDatabase("reply");
    const { secret } = await rotateSecret(openDatabase(DB), KEYS, id, 60, Date.now());
    expect(await earlierOf(id)).toHaveLength(1);
    expect(await secretOf(id)).toBe(secret);
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
      expect(await secretOf(id)).toBe(later);
      const ring = parseEncryptionKeys(KEYS);
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

  test("affects only this subscription, stores no secret in plain text, and does not appear in the client's list", async () => {
    const { workspaceId, api } = await openWorkspace();
    const [subscription, other] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    const { id: webhookId } = subscription;
    const before = [await subscriptionRow(other.id), (await api.get("/v1/webhooks")).body];
    const { secret } = await Platform.rotateWebhookSecret({ webhookId });
    const after = [await subscriptionRow(other.id), (await api.get("/v1/webhooks")).body];
    expect(after).toEqual(before);
    const stored = JSON.stringify([await subscriptionRow(webhookId), await earlierOf(webhookId)]);
    expect([secret, subscription.secret].filter((one) => stored.includes(one))).toEqual([]);
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
    const read = await listUnderOtherKeys(db, "next", FIRST, 1_000);
    const rotated = await rotateSecret(db, KEYS, id, 600, Date.now());
    const first = read.find((one) => one.id === id);
    if (!first) throw new Error("the secret was not read");
    await commit(db, updateSecret(first, `next.${first.sealedSecret}`));
    expect(await secretOf(id)).toBe(rotated.secret);
    expect(await earlierOf(id)).toMatchObject([{ sealedSecret: `next.${first.sealedSecret}` }]);
    expect(await open(parseEncryptionKeys(KEYS), id, first.sealedSecret)).toBe(secret);
  });
});
