import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { POST_TIMEOUT_MS } from "../../../src/contract/limits.ts";
import { createSender } from "../../../src/delivery/send.ts";
import { LEASE_MS } from "../../../src/dispatch/claims.ts";
import { rotateSecret } from "../../../src/subscriptions/rotation.ts";
import { sweep } from "../../../src/sweep.ts";
import { openedDataKeys } from "../../../src/workspaces/data-keys.ts";
import { leadReport, Platform, platformOf } from "../../support/api.ts";
import {
  ACKNOWLEDGED,
  announceLeads,
  answered,
  BROKEN,
  CONNECTION_LOST,
  consumeFor,
  createWorkspace,
  deliveriesTo,
  deliveryTo,
  expectedSignatures,
  FIRST_WAIT_MS,
  isolated,
  jumpTo,
  MINUTE_MS,
  observedDatabase,
  owed,
  postOf,
  REFUSING_QUEUE,
  receivedBy,
  redeliver,
  setSubscription,
  statesOf,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { DATABASE, db, WORKSPACE_DB } from "../../support/placement.ts";
import { damageLead, record } from "../../support/record.ts";
import type { Received } from "../../support/subscribers.ts";
import { steadyClock } from "../../support/timers.ts";
import { until } from "../../support/until.ts";

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Expects a post to be signed with the secret, in both schemes. @returns when. */
function expectSigned({ headers, body }: Received, secret: string): number {
  const timestamp = headers["webhook-timestamp"] ?? "";
  const eventId = JSON.parse(body).id;
  const { service, standard } = expectedSignatures(secret, eventId, timestamp, body);
  const signatures = { "x-service-signature": service, "webhook-signature": standard };
  expect(headers).toMatchObject({ "webhook-id": eventId, ...signatures });
  return Number(timestamp);
}

describe("a delivery", () => {
  test.each([
    ["a small one", ""],
    ["one of nearly 1 MB", 'é🌻\u2028\\"'.repeat(70_000)],
  ])(
    "is one POST of the stored event, uncompressed, in UTF-8, signed in both schemes: %s",
    async (_, note) => {
      const { id, url, secret, drafts } = await owed(1, Date.now(), { customFields: { note } });
      const { id: eventId, body } = drafts[0] as { id: string; body: string };
      const bytes = new TextEncoder().encode(body).length;
      if (note) expect(bytes).toBeGreaterThan(900_000);
      const startedAt = Math.floor(Date.now() / 1000);
      expect(await consumeFor([id], isolated().env)).toMatchObject(ACKNOWLEDGED);
      const [received, ...others] = (await receivedBy({ url })) as [Received];
      expect(others).toEqual([]);
      expect([received.url, received.body === body]).toEqual([url, true]);
      const created_at = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      expect(JSON.parse(body)).toMatchObject({ id: eventId, type: "lead.created", created_at });
      const sentAt = expectSigned(received, secret);
      expect(sentAt).toBeGreaterThanOrEqual(startedAt);
      expect(sentAt).toBeLessThanOrEqual(Date.now() / 1000);
      const described = {
        "content-type": "application/json; charset=utf-8",
        "content-length": String(bytes),
      };
      expect(received.headers).toMatchObject(described);
      for (const ours of ["authorization", "cookie", "content-encoding", "x-service-test"])
        expect(received.headers).not.toHaveProperty(ours);
      expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attemptsMade: 1 });
    },
  );

  test("blocks its endpoint for as long as Retry-After asks", async () => {
    const workspaceId = await createWorkspace();
    const url = `${subscriberUrl("status-503")}&retry-after=17`;
    const { id } = await subscribe(workspaceId, { url });
    await announceLeads(workspaceId, 1, Date.now());
    const startedAt = Date.now();
    await consumeFor([id], isolated().env);
    const { probeAt = 0 } = (await subscriptionRow(id)).circuits["lead.created"] ?? {};
    expect(probeAt - startedAt).toBeGreaterThanOrEqual(17_000);
    expect(probeAt - startedAt).toBeLessThan(27_000);
  });

  test("is retried with the same id and bytes, signed afresh", async () => {
    const now = Date.now();
    const later = now + 2 * FIRST_WAIT_MS;
    const { id, url, secret, drafts } = await owed(1, now, { behaviour: "first-fails" });
    await consumeFor([id], isolated().env);
    expect(await deliveryTo(id)).toMatchObject({
      state: "pending",
      attemptsMade: 1,
      lastStatus: 503,
    });
    jumpTo(later);
    await consumeFor([id], isolated().env);
    const received = await receivedBy({ url });
    expect(received.map(({ body }) => body)).toEqual([drafts[0]?.body, drafts[0]?.body]);
    const times = received.map((one) => expectSigned(one, secret));
    expect(times[1]).toBe(Math.floor(later / 1000));
    const settled = { state: "delivered", attemptsMade: 2, lastStatus: 200 };
    expect(await deliveryTo(id)).toMatchObject(settled);
  });

  test("to a URL that we no longer accept is rejected, and fails", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { url: "http://169.254.169.254/latest" });
    await announceLeads(workspaceId, 1, Date.now());
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url: "https://169.254.169.254/" })).toEqual([]);
    const refused = { state: "pending", attemptsMade: 1, lastOutcome: "refused", lastStatus: null };
    expect(await deliveryTo(id)).toMatchObject(refused);
  });

  test("whose lead cannot be decrypted is tried again like one that fails", async () => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    const now = Date.now();
    const recordLead = (reference: string, at: number) =>
      record(isolated().env, "recordLeads", { workspaceId, leads: [leadReport(reference)] }, at);
    const { ids } = await recordLead("damaged", now - 1);
    await damageLead(ids[0]);
    await recordLead("fine", now);
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(1);
    const rows = await deliveriesTo(id);
    const unreadable = { state: "pending", stepsUsed: 1, lastOutcome: "unreadable" };
    expect(rows).toMatchObject([unreadable, { state: "delivered" }]);
    expect(rows[0]?.dueAt).toBeGreaterThanOrEqual(now + FIRST_WAIT_MS);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, circuits: {} });
    const call = { webhookId: id, eventId: rows[0]?.eventId ?? "" };
    expect(await Platform.readDelivery(call)).toMatchObject({
      state: "retrying",
      body: "",
    });
  });

  test("whose lead cannot be decrypted is logged once, where it is read", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const leads = { workspaceId, leads: [leadReport("damaged")] };
    const { ids } = await record(isolated().env, "recordLeads", leads, Date.now());
    await damageLead(ids[0]);
    // A claim that takes a second is not used, and its leads are read again with the next one.
    steadyClock();
    const logged = vi.spyOn(console, "error").mockImplementation(() => {});
    await consumeFor([id], isolated().env);
    const events = logged.mock.calls.map(([line]) => JSON.parse(line).event);
    expect(events).toEqual(["lead_decrypt_failed"]);
  });
});

describe("the attempts of a dispatch", () => {
  const NOW = Date.UTC(2026, 0, 5);

  test("leave no timers behind: an invocation may only have 10,000", async () => {
    const { drafts, ...about } = await owed(1, NOW);
    const post = await postOf(about, drafts, NOW);
    const started = vi.spyOn(globalThis, "setTimeout");
    const ended = vi.spyOn(globalThis, "clearTimeout");
    const timeouts = vi.spyOn(AbortSignal, "timeout");
    const attempt = createSender(env).attempt;
    for (let i = 0; i < 20; i++) {
      const { storedResponse, ...outcome } = await attempt(...post);
      expect(outcome).toMatchObject(answered(200));
      await storedResponse;
    }
    expect(await receivedBy(about)).toHaveLength(20);
    const { calls, results } = started.mock;
    const timers = results
      .filter((_, i) => calls[i]?.[1] === POST_TIMEOUT_MS)
      .map(({ value }) => value);
    expect(timers.length).toBeGreaterThanOrEqual(20);
    // Files share a runtime: a post of the file before may still have one.
    await until(() => timers.every((timer) => ended.mock.calls.some(([one]) => one === timer)));
    expect(timeouts).not.toHaveBeenCalled();
  });

  test("are signed for the second in which they start", async () => {
    const { drafts, ...about } = await owed(1, NOW);
    const [delivery, target] = await postOf(about, drafts, NOW);
    const attempt = createSender(env).attempt;
    for (const later of [999, 1_000]) await attempt(delivery, target, NOW + later);
    const [first, second] = (await receivedBy(about)) as [Received, Received];
    expect(expectSigned(first, about.secret)).toBe(NOW / 1000);
    expect(expectSigned(second, about.secret)).toBe(NOW / 1000 + 1);
  });

  test("are signed with a secret that was rotated while their claim was on its way", async () => {
    jumpTo(NOW);
    const clock = steadyClock();
    const { id, url } = await owed(1, NOW);
    const rotated: string[] = [];
    const { DB } = observedDatabase({
      after: async (trip) => {
        if (trip > 1) return;
        const rotation = await rotateSecret(db, env.ENCRYPTION_KEYS, id, 0, NOW + 100);
        rotated.push(rotation.secret);
        vi.setSystemTime(NOW + 5_000);
        clock.passedMs = 5_000;
      },
    });
    await consumeFor([id], isolated({ DB }).env);
    const [received] = (await receivedBy({ url })) as [Received];
    expect(expectSigned(received, rotated[0] ?? "")).toBe(NOW / 1000 + 5);
  });

  test("are not made without the secret, even if the lead is damaged, too", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const call = { workspaceId, leads: [leadReport("damaged")] };
    const { ids } = await record(isolated().env, "recordLeads", call, Date.now());
    await damageLead(ids[0]);
    const { sealedSecret } = await subscriptionRow(id);
    const damaged = sealedSecret.replace(/..$/, (byte) => (byte === "00" ? "11" : "00"));
    await setSubscription(id, { sealedSecret: damaged });
    await consumeFor([id], isolated().env);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", stepsUsed: 0, lastAt: null });
  });
});

describe("when D1 returns an error", () => {
  test.each([
    ["that lasts", "claim", "fast", CONNECTION_LOST],
    ["that is not a network error", "settlement", "slow", BROKEN],
  ] as const)(
    "%s on the %s, its %s queue wakes it again, and a lease protects it",
    async (...given) => {
      const [, at, queue, error] = given;
      const now = Date.now();
      const { id, url, drafts } = await owed(1, now);
      await setSubscription(id, { slow: queue === "slow" });
      const consume = (bindings: Env) => consumeFor([id], bindings, undefined, queue);
      const posted = at === "claim" ? 0 : 1;
      const { DB } = observedDatabase({
        before: (trip) => {
          if (trip > posted) throw error;
        },
      });
      const deployment = isolated({ DB });
      expect(await consume(deployment.env)).toMatchObject(ACKNOWLEDGED);
      const hint = { subscriptionId: id, queue, database: DATABASE, delaySeconds: LEASE_MS / 1000 };
      expect([...deployment.fast, ...deployment.slow]).toEqual([hint]);
      expect(await receivedBy({ url })).toHaveLength(posted);
      const row = { state: "pending", stepsUsed: 0, lastOutcome: null, dueAt: now };
      expect(await deliveryTo(id)).toMatchObject(row);
      const { leasedBy, leasedUntil } = await subscriptionRow(id);
      if (posted === 0) expect(leasedBy).toBeNull();
      else {
        expect(leasedUntil - now).toBeGreaterThanOrEqual(LEASE_MS);
        // Woken during the lease, and again when it has ended.
        await consume(isolated().env);
        expect(await receivedBy({ url })).toHaveLength(1);
        jumpTo(leasedUntil);
      }
      expect(await consume(isolated().env)).toMatchObject(ACKNOWLEDGED);
      const received = await receivedBy({ url });
      expect(received.map(({ body }) => body)).toEqual(Array(posted + 1).fill(drafts[0]?.body));
      expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attemptsMade: 1 });
    },
  );
});

test("a delayed wake-up message is sent even if the reply to its settlement is lost", async () => {
  const { id } = await owed(1, Date.now(), { behaviour: "status-500" });
  let hasLost = false;
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const result = await go();
    if (hasLost || !texts.some((text) => /insert into "attempts"/i.test(text))) return result;
    hasLost = true;
    throw CONNECTION_LOST;
  });
  const deployment = isolated({ DB });
  await consumeFor([id], deployment.env);
  expect(hasLost).toBe(true);
  expect([...deployment.fast, ...deployment.slow]).toHaveLength(1);
});

test("a manual send that cannot be attempted is not claimed again at once", async () => {
  const now = Date.now();
  const { id, drafts } = await owed(1, now - 1_000);
  await consumeFor([id], isolated().env);
  await redeliver(id, [drafts[0]?.id ?? ""], now);
  openedDataKeys.clear();
  const broken = isolated({ ENCRYPTION_KEYS: "nonsense" });
  await consumeFor([id], broken.env);
  openedDataKeys.clear();
  const [next] = [...broken.fast, ...broken.slow];
  expect(next?.delaySeconds).toBeGreaterThan(100);
  expect(await deliveryTo(id)).toMatchObject({
    state: "pending",
    stepsUsed: 0,
    lastOutcome: "answered",
  });
});

test("when a queue rejects the wake after the commit, the call succeeds and the sweep finds the event", async () => {
  const workspaceId = await createWorkspace();
  const { id, url } = await subscribe(workspaceId);
  const refusing = isolated({ DELIVERIES: REFUSING_QUEUE, SLOW_DELIVERIES: REFUSING_QUEUE });
  const platform = platformOf(refusing.env);
  const { ids } = await platform.recordLeads({ workspaceId, leads: [leadReport("lead-1")] });
  expect(await statesOf(id)).toEqual({ pending: 1 });
  const later = isolated();
  await sweep(later.env, Date.now() + MINUTE_MS + 1000);
  expect(later.fast).toContainEqual(
    expect.objectContaining({ subscriptionId: id, delaySeconds: 0 }),
  );
  await consumeFor([id], later.env);
  expect(JSON.parse((await receivedBy({ url }))[0]?.body ?? "").data.id).toBe(ids[0]);
});
