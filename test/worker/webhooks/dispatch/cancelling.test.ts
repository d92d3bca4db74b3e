import { exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { commit, inOrder } from "../../../../src/db/client.ts";
import { subscriptions } from "../../../../src/db/schema.ts";
import {
  cancelPendingOf,
  deleteSubscription,
  disableSubscription,
} from "../../../../src/webhooks/subscriptions.ts";
import { updateAccess } from "../../../../src/workspaces/workspaces.ts";
import { openWorkspace } from "../../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  db,
  dispatchAt,
  dispatchOn,
  HOUR_MS,
  heldDispatch,
  observedDatabase,
  owed,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
/** The duration of a lease. */
const LEASE_MS = 20_000;
/** No post to a withdrawn subscription starts later than this. */
const WITHDRAWN_MS = 2_000;

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

type Owed = Awaited<ReturnType<typeof owed>>;
type Owner = Awaited<ReturnType<typeof openWorkspace>>;

/** What `setWorkspaceAccess` commits, at a given time. */
function withdrawAccess(workspaceId: string, now: number) {
  return commit(db, inOrder([updateAccess(workspaceId, false), cancelPendingOf(workspaceId, now)]));
}

const ENDS: [how: string, end: (owed: Owed, now: number) => Promise<unknown>][] = [
  [
    "is deleted",
    ({ workspaceId, id }, now) => commit(db, deleteSubscription(workspaceId, id, now)),
  ],
  ["loses its workspace's access", ({ workspaceId }, now) => withdrawAccess(workspaceId, now)],
  ["is disabled", ({ id }, now) => commit(db, disableSubscription(id, now))],
];

describe("a subscription that", () => {
  test.each(ENDS)(
    "%s before the claim gets nothing more: its deliveries are cancelled",
    async (_, end) => {
      const withdrawn = await owed(3, NOW);
      const { id, workspaceId } = withdrawn;
      await end(withdrawn, NOW);
      const { posts, attempt } = subscriber();
      await dispatchAt(NOW + 1000, [id], attempt);
      expect(posts).toEqual([]);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
      const ledger = await exports.Platform.ledger({ workspaceId });
      expect(ledger).toMatchObject({ created: 3, cancelled: 3, addsUp: true });
    },
  );

  test.each(ENDS)(
    "%s during a post has it recorded as acknowledged, though its dispatch cleans up meanwhile",
    async (_, end) => {
      const withdrawn = await owed(1, NOW);
      const other = await owed(20, NOW);
      const ended = Promise.withResolvers<void>();
      const cleaned = Promise.withResolvers<void>();
      const { DB } = observedDatabase({ after: (trip) => void (trip === 3 && cleaned.resolve()) });
      let now = NOW;
      const { attempt } = subscriber(async ({ subscriptionId }) => {
        if (subscriptionId === withdrawn.id) {
          await end(withdrawn, NOW);
          ended.resolve();
          await cleaned.promise;
        } else {
          await ended.promise;
          // Some posts later, the next one waits for a round trip.
          now += 400;
        }
        return OK;
      });
      await dispatchOn(DB, () => now, [withdrawn.id, other.id], attempt);
      expect(await statesOf(withdrawn.id)).toEqual({ delivered: 1 });
    },
  );

  test.each(ENDS)(
    "%s during a dispatch that crashes has the rest cancelled after the lease",
    async (_, end) => {
      const withdrawn = await owed(3, NOW);
      const { id } = withdrawn;
      const crashed = await heldDispatch(NOW, id);
      await end(withdrawn, NOW);
      expect(await statesOf(id)).toEqual({ pending: 3 });
      const { posts, attempt } = subscriber();
      await dispatchAt(NOW + LEASE_MS, [id], attempt);
      expect(posts).toEqual([]);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
      await crashed.finish(OK);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
    },
  );
});

describe("a subscription that, while a long body is read,", () => {
  test.each(ENDS)("%s does not get it, however long the read takes", async (_, end) => {
    const withdrawn = await owed(1, NOW, { customFields: { text: "x".repeat(20_000) } });
    let now = NOW;
    const { DB, trips } = observedDatabase({
      after: async (trip) => {
        if (trip !== 2) return;
        await end(withdrawn, now);
        now += WITHDRAWN_MS + 1;
      },
    });
    const { posts, attempt } = subscriber();
    await dispatchOn(DB, () => now, [withdrawn.id], attempt);
    expect(trips[1]).toEqual([expect.stringContaining('from "events"')]);
    expect(posts).toEqual([]);
  });

  test("stays as it is gets it once, though the read takes long", async () => {
    const { id } = await owed(1, NOW, { customFields: { text: "x".repeat(20_000) } });
    let now = NOW;
    const { DB, trips } = observedDatabase({
      after: (trip) => {
        if (trips[trip - 1]?.length === 1) now += 1_600;
      },
    });
    const { posts, attempt } = subscriber();
    await dispatchOn(DB, () => now, [id], attempt);
    expect(posts).toHaveLength(1);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});

describe("a subscription that, during a dispatch,", () => {
  test.each(ENDS)("%s gets no post that starts later than 2 s", async (_, end) => {
    const withdrawn = await owed(100, NOW);
    const { id } = withdrawn;
    await setSubscription(id, { postsAtOnce: 6 });
    let now = NOW;
    let endedAt = Number.POSITIVE_INFINITY;
    const late: number[] = [];
    const { posts, attempt } = subscriber(async () => {
      if (posts.length === 10) {
        await end(withdrawn, now);
        endedAt = now;
      }
      if (now > endedAt) late.push(now - endedAt);
      // The clock advances by 100 ms per post, and the database has time to answer.
      now += 100;
      await sleep(5);
      return OK;
    });
    await dispatchAt(() => now, [id], attempt);
    expect(posts.length).toBeGreaterThanOrEqual(10);
    expect(posts.length).toBeLessThan(100);
    expect(late.filter((ms) => ms > WITHDRAWN_MS)).toEqual([]);
    const { delivered = 0, cancelled = 0, pending = 0 } = await statesOf(id);
    expect([delivered, pending]).toEqual([posts.length, 0]);
    expect(cancelled).toBe(100 - posts.length);
    await dispatchAt(now + HOUR_MS, [id], attempt);
    expect(await statesOf(id)).toEqual({ delivered, cancelled });
  });

  test.each(ENDS)(
    "%s is not posted to later than that even if the database is slow",
    async (_, end) => {
      const withdrawn = await owed(40, NOW);
      const { DB } = observedDatabase({ before: (trip) => (trip > 1 ? sleep(100) : undefined) });
      let now = NOW;
      const starts: number[] = [];
      const { posts, attempt } = subscriber(async () => {
        starts.push(now);
        if (posts.length === 1) await end(withdrawn, NOW);
        now += 400;
        await sleep(2);
        return OK;
      });
      await dispatchOn(DB, () => now, [withdrawn.id], attempt);
      expect(posts.length).toBeGreaterThan(1);
      expect(starts.filter((at) => at - NOW > WITHDRAWN_MS)).toEqual([]);
      const cancelled = 40 - posts.length;
      expect(await statesOf(withdrawn.id)).toEqual({ delivered: posts.length, cancelled });
    },
  );
});

describe("a large backlog that is withdrawn", () => {
  async function largelyOwed(count = 5_000, now = NOW, workspaceId?: string) {
    const owner = workspaceId ?? (await createWorkspace());
    const { id } = await subscribe(owner);
    await announceLeads(owner, count, now);
    return { workspaceId: owner, id };
  }

  test("is cancelled in chunks, and not posted to anyone", async () => {
    const { workspaceId, id } = await largelyOwed();
    await commit(db, deleteSubscription(workspaceId, id, NOW));
    expect(await statesOf(id)).toEqual({ cancelled: 1_000, pending: 4_000 });
    const { posts, attempt } = subscriber();
    // A dispatch makes as many round trips as every plan allows.
    for (let i = 0; i < 2; i++) await dispatchAt(NOW + 1, [id], attempt, "slow");
    expect(posts).toEqual([]);
    expect(await statesOf(id)).toEqual({ cancelled: 5_000 });
    expect(await db.select().from(subscriptions).where(sql`id = ${id}`)).toEqual([]);
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 5_000, cancelled: 5_000, addsUp: true });
  });

  test.each<[door: string, withdraw: (id: string, owner: Owner) => Promise<unknown>]>([
    ["disableWebhook", (webhookId) => exports.Platform.disableWebhook({ webhookId })],
    ["deleteWebhook", (webhookId) => exports.Platform.deleteWebhook({ webhookId })],
    [
      "setWorkspaceAccess",
      (_, { workspaceId }) => exports.Platform.setWorkspaceAccess({ workspaceId, granted: false }),
    ],
    ["DELETE /v1/webhooks/{id}", (id, { api }) => api.delete(`/v1/webhooks/${id}`)],
  ])("is cancelled to the end through the queues, without the sweep: %s", async (_, withdraw) => {
    const owner = await openWorkspace();
    const { id } = await largelyOwed(1_100, Date.now(), owner.workspaceId);
    await withdraw(id, owner);
    await expect.poll(() => statesOf(id), { timeout: 10_000 }).toEqual({ cancelled: 1_100 });
  });

  test("is not revived if access returns in the meantime; what is announced then is delivered", async () => {
    const { workspaceId, id } = await largelyOwed();
    let now = NOW;
    const begun = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<void>();
    const held = dispatchAt(
      () => now,
      [id],
      async () => {
        begun.resolve();
        await answer.promise;
        return OK;
      },
    );
    await begun.promise;
    await withdrawAccess(workspaceId, NOW);
    await commit(db, updateAccess(workspaceId, true));
    const fresh = (await announceLeads(workspaceId, 3, NOW + 1)).map((draft) => draft.id);
    now += WITHDRAWN_MS;
    answer.resolve();
    await held;
    const { posts, attempt } = subscriber();
    for (let i = 0; i < 4; i++) await dispatchAt(NOW + LEASE_MS + i, [id], attempt);
    expect(posts.toSorted()).toEqual(fresh.toSorted());
    expect(await statesOf(id)).toEqual({ cancelled: 4_999, delivered: 4 });
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 5_003, pending: 0, addsUp: true });
  });
});
