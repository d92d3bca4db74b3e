import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { connect } from "../../../src/db/client.ts";
import { openSecret } from "../../../src/endpoints/secrets.ts";
import { rotateSecret } from "../../../src/subscriptions/rotation.ts";
import { loadDataKeyToWrite } from "../../../src/workspaces/data-keys.ts";
import { errorOf, openWorkspace, Platform, platformOf } from "../../support/api.ts";
import {
  announceLeads,
  consumeFor,
  createWorkspace,
  expectedSignatures,
  isolated,
  observedDatabase,
  receivedBy,
  subscribe,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { lossyDatabase } from "../../support/lost-reply.ts";
import { db, WORKSPACE_DB } from "../../support/placement.ts";

const KEYS = env.ENCRYPTION_KEYS;

/** A subscription, its current and its earlier secrets, and a check of how deliveries are signed. */
async function openSubscribed() {
  const workspaceId = await createWorkspace();
  const subscription = await subscribe(workspaceId);
  const { id } = subscription;
  /** Expects the next delivery to be signed with these secrets, the last of which is the newest. */
  const signedWith = async (...secrets: string[]) => {
    await announceLeads(workspaceId, 1, Date.now());
    await consumeFor([id], isolated().env);
    const { headers = {}, body = "" } = (await receivedBy(subscription)).at(-1) ?? {};
    const { "webhook-id": eventId = "", "webhook-timestamp": timestamp = "" } = headers;
    const all = secrets.map((one) => expectedSignatures(one, eventId, timestamp, body));
    // Earlier ones have no order.
    const combine = (signed: string[] = []) => [...signed.slice(0, -1).sort(), signed.at(-1)];
    const [at, ...service] = headers["x-service-signature"]?.split(",") ?? [];
    expect(at).toBe(`t=${timestamp}`);
    expect(combine(service)).toEqual(combine(all.map((each) => each.service.replace(/^.*,/, ""))));
    const standard = headers["webhook-signature"]?.split(" ");
    expect(combine(standard)).toEqual(combine(all.map((each) => each.standard)));
  };
  const key = await loadDataKeyToWrite(connect(WORKSPACE_DB), KEYS, workspaceId);
  const opened = (sealed: string) => openSecret(key, id, sealed);
  return {
    ...subscription,
    signedWith,
    current: async () => opened((await subscriptionRow(id)).sealedSecret),
    earlier: async () => {
      const { earlierSecrets } = await subscriptionRow(id);
      return Promise.all((earlierSecrets ?? []).map(({ sealedSecret }) => opened(sealedSecret)));
    },
  };
}

describe("rotateWebhookSecret", () => {
  test("signs deliveries with both secrets, the old one first, until the grace period is ended", async () => {
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

  test("leaves only the new secret when the grace period has ended", async () => {
    const { id, secret: old, signedWith, earlier } = await openSubscribed();
    const { secret } = await rotateSecret(db, KEYS, id, 3_590, Date.now() - 3_600_000);
    await signedWith(secret);
    expect(await earlier()).toEqual([old]);
    await rotateSecret(db, KEYS, id, 60, Date.now());
    expect(await earlier()).toEqual([secret]);
  });

  test("keeps the secret that the receiver knows, though called again, until an overlap of 0", async () => {
    const { id: webhookId, secret: known, signedWith, earlier } = await openSubscribed();
    const rotate = (overlapSeconds: number) =>
      Platform.rotateWebhookSecret({ webhookId, overlapSeconds });
    const lost = await rotate(60);
    const seen = await rotate(120);
    await signedWith(known, lost.secret, seen.secret);
    const shown = await Platform.readWebhook({ webhookId });
    expect(shown.overlapEndsAt).toBe(seen.overlapEndsAt);
    const { secret, overlapEndsAt } = await rotate(0);
    expect(overlapEndsAt).toBeNull();
    await signedWith(secret);
    expect(await earlier()).toEqual([]);
  });

  test("leaves the grace period of both secrets if it is called again after a lost reply", async () => {
    const { id, secret: old, current, earlier } = await openSubscribed();
    const lost = rotateSecret(connect(lossyDatabase("reply")), KEYS, id, 60, Date.now());
    await expect(lost).rejects.toThrow();
    const unseen = await current();
    const { secret } = await rotateSecret(db, KEYS, id, 60, Date.now());
    expect([await earlier(), await current()]).toEqual([[old, unseen], secret]);
  });

  test("is rejected if another call has rotated the secret since it began", async () => {
    const { id: webhookId } = await openSubscribed();
    const rotation = { webhookId, overlapSeconds: 60 };
    let reads = 0;
    const { DB } = observedDatabase({
      before: async (_, texts) => {
        const isRead = texts.some((text) => /^select .*"sealed_secret"/.test(text));
        // The second read is that of the rotation itself.
        if (isRead && ++reads === 2) await Platform.rotateWebhookSecret(rotation);
      },
    });
    const late = platformOf({ ...env, DB }).rotateWebhookSecret(rotation);
    expect(await errorOf(late)).toContain("another call has just rotated its secret");
  });

  test("leaves the end of a grace period as it was, if it has ended", async () => {
    const { id } = await subscribe(await createWorkspace());
    const now = Date.now();
    await rotateSecret(db, KEYS, id, 60, now - 3_600_000);
    // The first secret still signs then.
    await rotateSecret(db, KEYS, id, 7_200, now - 3_590_000);
    const ends = async () => (await subscriptionRow(id)).earlierSecrets?.map(({ until }) => until);
    expect(await ends()).toEqual([now - 3_540_000, now + 3_610_000]);
    await Platform.endSecretOverlap({ webhookId: id });
    const ended = await ends();
    expect(ended).toEqual([now - 3_540_000, expect.closeTo(Date.now(), -4)]);
    await Platform.endSecretOverlap({ webhookId: id });
    expect(await ends()).toEqual(ended);
  });

  test("is rejected while four earlier secrets are valid, and changes nothing, unless it ends them", async () => {
    const { id } = await subscribe(await createWorkspace());
    for (let i = 0; i < 4; i++) await rotateSecret(db, KEYS, id, 60, Date.now());
    const before = await subscriptionRow(id);
    expect(await errorOf(rotateSecret(db, KEYS, id, 60, Date.now()))).toContain("overlapSeconds 0");
    expect(await subscriptionRow(id)).toEqual(before);
    // Once they are no longer valid, there is room for another one.
    await rotateSecret(db, KEYS, id, 60, Date.now() + 60_000);
    expect((await subscriptionRow(id)).earlierSecrets).toHaveLength(1);
    await rotateSecret(db, KEYS, id, 0, Date.now());
    expect(await subscriptionRow(id)).toMatchObject({ earlierSecrets: null });
  });

  test("leaves no earlier secret of a subscription that is deleted", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id: webhookId } = await subscribe(workspaceId);
    await Platform.rotateWebhookSecret({ webhookId });
    expect((await api.delete(`/v1/webhooks/${webhookId}`)).status).toBe(204);
    expect(await subscriptionRow(webhookId)).toMatchObject({ earlierSecrets: null });
  });

  test("stores and lists no secret in plain text", async () => {
    const { workspaceId, api } = await openWorkspace();
    const [subscription, other] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    const { id: webhookId } = subscription;
    const before = [await subscriptionRow(other.id), (await api.get("/v1/webhooks")).body];
    const { secret } = await Platform.rotateWebhookSecret({ webhookId });
    const after = [await subscriptionRow(other.id), (await api.get("/v1/webhooks")).body];
    expect(after).toEqual(before);
    const stored = JSON.stringify(await subscriptionRow(webhookId));
    expect([secret, subscription.secret].filter((one) => stored.includes(one))).toEqual([]);
  });
});
