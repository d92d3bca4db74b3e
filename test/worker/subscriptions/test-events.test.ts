import { env } from "cloudflare:workers";
import { expect, test, vi } from "vitest";
import {
  REDELIVERIES_PER_HOUR,
  RESPONSES_PER_DAY,
  TEST_EVENTS_PER_MINUTE,
} from "../../../src/contract/limits.ts";
import { dayOf } from "../../../src/contract/time.ts";
import { commit } from "../../../src/db/client.ts";
import { takeRedeliveries, takeTestEvent } from "../../../src/workspaces/workspaces.ts";
import { deployedWith, errorOf, openWorkspace, Platform, platformOf } from "../../support/api.ts";
import {
  createWorkspace,
  HOUR_MS,
  jumpTo,
  observedDatabase,
  receivedBy,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { db, inDatabase, WORKSPACE_DB } from "../../support/placement.ts";
import { openPortal } from "../../support/portal.ts";

test("The test events of a workspace have one budget a minute, whatever its endpoints respond", async () => {
  const { workspaceId } = await openWorkspace();
  const other = await openWorkspace();
  const url = subscriberUrl("status-405");
  const portal = await openPortal(workspaceId, deployedWith({}));
  const webhooks = [await subscribe(workspaceId, { url }), await subscribe(workspaceId, { url })];
  const send = (i: number) =>
    portal.post(`/webhooks/${webhooks[i % 2]?.id}/test`, { type: "lead.created" });
  for (let left = TEST_EVENTS_PER_MINUTE; left > 4; left--)
    await commit(db, takeTestEvent(workspaceId, Date.now()));
  const sent = await Promise.all(Array.from({ length: 8 }, (_, i) => send(i)));
  const refused = sent.filter(({ status }) => status !== 200);
  expect(refused).toHaveLength(4);
  for (const { status, headers, body } of refused)
    expect([status, Number(headers["retry-after"]) <= 60, body]).toMatchObject([
      429,
      true,
      { error: { code: "rate_limited" } },
    ]);
  expect(await receivedBy({ url })).toHaveLength(4);
  const { id: webhookId } = webhooks[0] as { id: string };
  expect(await errorOf(Platform.sendTestEvent({ webhookId, type: "lead.created" }))).toMatch(
    /^sendTestEvent: webhookId: .* test events in a minute/,
  );
  const { id: theirs } = await subscribe(other.workspaceId);
  await Platform.sendTestEvent({ webhookId: theirs, type: "lead.created" });
  jumpTo(Date.now() + 61_000);
  expect((await send(0)).status).toBe(200);
  vi.useRealTimers();
});

test("A test event is sent to the URL of the moment, although the call began before", async () => {
  const { workspaceId } = await openWorkspace();
  const [former, url] = [subscriberUrl(), subscriberUrl()];
  const { id: webhookId } = await subscribe(workspaceId, { url: former });
  const { DB } = observedDatabase({
    before: async (_, texts) => {
      if (texts.join().includes("test_events")) await Platform.updateWebhook({ webhookId, url });
    },
  });
  const portal = await openPortal(workspaceId, deployedWith({ DB }));
  const { status } = await portal.post(`/webhooks/${webhookId}/test`, { type: "lead.created" });
  expect(status).toBe(200);
  expect(await receivedBy({ url: former })).toEqual([]);
  const received = await receivedBy({ url });
  expect(received).toHaveLength(1);
  // It happened just now, to a record whose id says that it is a test.
  const event = JSON.parse(received[0]?.body ?? "");
  expect(event.data).toMatchObject({ id: "lea_test", created_at: event.created_at });
});

test("The response to a test event counts once if the reply of the database is lost", async () => {
  const { workspaceId } = await openWorkspace();
  const { id: webhookId } = await subscribe(workspaceId, { url: subscriberUrl("status-500") });
  let tries = 0;
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const result = await go();
    if (texts.some((text) => text.startsWith('insert into "events"')) && ++tries === 1)
      throw new Error("D1_ERROR: Network connection lost.");
    return result;
  });
  const platform = platformOf({ ...env, ...inDatabase({ DB }) });
  await platform.sendTestEvent({ webhookId, type: "lead.created" });
  expect(tries).toBe(2);
  const { dailyCounts } = await subscriptionRow(webhookId);
  expect(Object.values(dailyCounts)).toEqual([{ responses: 1 }]);
  // Nothing was sent, so there is no response to count.
  const { id: refused } = await subscribe(workspaceId, { url: "http://169.254.169.254/" });
  await Platform.sendTestEvent({ webhookId: refused, type: "lead.created" });
  expect((await subscriptionRow(refused)).dailyCounts).toEqual({});
});

test("The minute that test events are counted in begins with its first one", async () => {
  const workspaceId = await createWorkspace();
  const now = Date.now();
  const take = (ms: number) => commit(db, takeTestEvent(workspaceId, now + ms));
  for (let n = 1; n < TEST_EVENTS_PER_MINUTE; n++) expect(await take(0)).toBe(null);
  expect(await take(59_000)).toBe(null);
  expect(await take(30_500)).toBe(30);
  expect(await take(59_000)).toBe(1);
  expect(await take(60_000)).toBe(null);
});

test("What is given back after its window has ended leaves no more room in the next one", async () => {
  const workspaceId = await createWorkspace();
  const now = Date.now();
  const take = (count: number, ms: number) =>
    commit(db, takeRedeliveries(workspaceId, count, now + ms));
  expect(await take(10, 0)).toBe(null);
  for (const count of [-10, REDELIVERIES_PER_HOUR]) expect(await take(count, HOUR_MS)).toBe(null);
  expect(await take(1, HOUR_MS)).toBe(3_600);
});

test("Responses to test events count for those that a subscription may store in a day", async () => {
  jumpTo(Date.now());
  const { workspaceId } = await openWorkspace();
  const { id: webhookId } = await subscribe(workspaceId, { url: subscriberUrl("status-500") });
  const { id: other } = await subscribe(workspaceId);
  await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  const storeMore = (count: number) =>
    WORKSPACE_DB.prepare(
      "UPDATE subscriptions SET daily_counts = json_object(?, json_object('responses', ?)) WHERE id = ?",
    )
      .bind(dayOf(Date.now()), count, webhookId)
      .run();
  const isStored = async (id: string) => {
    const { eventId } = await Platform.sendTestEvent({ webhookId: id, type: "lead.created" });
    const stored = WORKSPACE_DB.prepare("SELECT response FROM attempts WHERE event_id = ?");
    return (await stored.bind(eventId).first("response")) !== null;
  };
  await storeMore(RESPONSES_PER_DAY - 2);
  expect((await Platform.readWebhook({ webhookId })).responseLimitReached).toBe(false);
  expect(await isStored(webhookId)).toBe(true);
  expect(await isStored(webhookId)).toBe(true);
  expect((await Platform.readWebhook({ webhookId })).responseLimitReached).toBe(true);
  expect(await isStored(webhookId)).toBe(false);
  expect(await isStored(other)).toBe(true);
});
