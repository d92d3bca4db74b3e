import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { AGREED_SUBSCRIPTIONS_MAX } from "../../../../src/contract/limits.ts";
import { isoTime } from "../../../../src/contract/time.ts";
import { FAILURES_LIMIT_MAX } from "../../../../src/history/failing.ts";
import type { FailureView } from "../../../../src/history/views.ts";
import { SEARCHED_MAX } from "../../../../src/records/finding.ts";
import { deployedWith, leadReport, openWorkspace, pagesOf } from "../../../support/api.ts";
import { DAY_MS, HOUR_MS, subscribe, subscribeMany } from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";
import { openPortal } from "../../../support/portal.ts";
import { fillLeads, record } from "../../../support/record.ts";
import { storeEvents } from "../../../support/stored-events.ts";

const NOW = Date.now();
/** Of the portal, per workspace: see `PORTAL_REQUESTS` in wrangler.toml. */
const REQUESTS_PER_MINUTE = 300;
/** What the requests of a minute may read: several seconds of the database's time. */
const ROWS_PER_MINUTE = 14_000_000;
/** What requests that replay may read of these. */
const REPLAYED_PER_MINUTE = 9_000_000;

/** When the events that failed at every webhook were recorded: they are the newest. */
const FAILED_EVERYWHERE_AT = NOW + HOUR_MS;
const FAILED_EVERYWHERE = FAILURES_LIMIT_MAX + 1;

/** Records leads whose events fail at every webhook. A search finds them behind all the others that it examines. */
async function failEverywhere(workspaceId: string): Promise<void> {
  const references = Array.from({ length: FAILED_EVERYWHERE }, (_, i) => `lead-${i}`);
  const leads = references.map((reference) => leadReport(reference, { name: "Camille Durand" }));
  await record(env, "recordLeads", { workspaceId, leads }, FAILED_EVERYWHERE_AT);
  await WORKSPACE_DB.prepare(`
    UPDATE deliveries SET state = 'exhausted', settled_at = ?2
    WHERE event_id IN (SELECT event_id FROM leads WHERE workspace_id = ?1)`)
    .bind(workspaceId, FAILED_EVERYWHERE_AT)
    .run();
  await fillLeads(workspaceId, SEARCHED_MAX - FAILED_EVERYWHERE);
}

describe("however much is stored, the requests that a portal may make in a minute leave the database to others:", () => {
  let portal: Awaited<ReturnType<typeof openPortal>>;
  let id = "";
  let eventIds: string[] = [];
  const { DB, rows } = meteredDatabase();
  const noQueue = { sendBatch: async () => {} } as unknown as Queue;

  beforeAll(async () => {
    const { workspaceId } = await openWorkspace();
    ({ id } = await subscribe(workspaceId));
    // Many on each day, and as many pending ones: more than the requests below may read.
    for (let day = 1; day <= 5; day++)
      eventIds = await storeEvents(workspaceId, id, 5_000, NOW - day * DAY_MS, "delivered");
    await storeEvents(workspaceId, id, 5_000, NOW, "pending");
    const others = await subscribeMany(workspaceId, AGREED_SUBSCRIPTIONS_MAX - 1);
    await storeEvents(workspaceId, others, 150, NOW, "pending");
    await storeEvents(workspaceId, others, 150, NOW - DAY_MS, "exhausted");
    await failEverywhere(workspaceId);
    const fetch = deployedWith({
      DB,
      DELIVERIES: noQueue,
      SLOW_DELIVERIES: noQueue,
      PORTAL_REQUESTS: { limit: async () => ({ success: true }) },
    });
    portal = await openPortal(workspaceId, fetch);
  });

  const since = isoTime(NOW - 29 * DAY_MS);
  const webhook = (path = "") => `/webhooks/${id}${path}`;
  const redeliver = (body: object) => portal.post(webhook("/redeliver"), body);
  /** Each asks for another range. */
  const range = (i: number, state: string) =>
    redeliver({ since, until: isoTime(NOW - i), states: [state] });
  test.each<[string, () => Promise<{ status: number }>]>([
    ["the list of webhooks", () => portal.get("/webhooks")],
    ["a webhook with its days", () => portal.get(webhook())],
    ["a filtered list of deliveries", () => portal.get(webhook("/deliveries?state=exhausted"))],
    ["deliveries of another type", () => portal.get(webhook("/deliveries?type=run.completed"))],
    [
      "retried deliveries of another status",
      () => portal.get(webhook("/deliveries?state=retrying&status=418")),
    ],
    ["the deliveries of a lead", () => portal.get(webhook("/deliveries?lead=camille&limit=100"))],
    ["filtered failures", () => portal.get("/failures?status=410")],
    ["failures at one webhook each", () => portal.get(`/failures?until=${isoTime(NOW + HOUR_MS)}`)],
    ["failures at every webhook", () => portal.get(`/failures?limit=${FAILURES_LIMIT_MAX}`)],
    ["the failures of a lead", () => portal.get("/failures?lead=camille")],
    ["the counts of failures", () => portal.get("/failure-counts?type=lead.created")],
    ["a delivery", () => portal.get(webhook(`/deliveries/${eventIds[0]}`))],
  ])("%s", async (_, request) => {
    const before = rows.read;
    expect((await request()).status).toBe(200);
    expect((rows.read - before) * REQUESTS_PER_MINUTE).toBeLessThan(ROWS_PER_MINUTE);
  });

  test.each([
    ["failures", ""],
    ["a lead's failures", "&lead=camille"],
  ])("the pages of %s at every webhook miss none and repeat none", async (_, filter) => {
    const since = isoTime(FAILED_EVERYWHERE_AT);
    const pages = await pagesOf<FailureView>(async (cursor) => {
      const query = `since=${since}${filter}&cursor=${cursor ?? ""}`;
      type Page = { items: FailureView[]; nextCursor: string | null };
      const { status, body } = await portal.get<Page>(`/failures?${query}`);
      expect(status).toBe(200);
      return body;
    });
    const found = new Set(pages.flat().map(({ eventId, webhookId }) => eventId + webhookId));
    expect(found.size).toBe(FAILED_EVERYWHERE * AGREED_SUBSCRIPTIONS_MAX);
    expect(pages.flat()).toHaveLength(found.size);
  });

  test.each<[string, (i: number) => Promise<{ status: number }>]>([
    ["a range of which nothing is to be sent", (i) => range(i, "missed")],
    ["a range of which everything is to be sent", (i) => range(i, "delivered")],
    ["the same range again and again", () => redeliver({ since, states: ["exhausted", "missed"] })],
    [
      "enabling, with what was missed",
      () => portal.post(webhook("/enable"), { redeliverSince: since }),
    ],
    [
      "the most named events",
      (i) => redeliver({ eventIds: eventIds.slice(100 * i, 100 * i + 100) }),
    ],
  ])("%s", async (_, request) => {
    for (let i = 0; i < 4; i++) {
      const before = rows.read;
      // Later requests may exceed the hourly limit or the hundred pending resends.
      expect(i === 0 ? [200] : [200, 429]).toContain((await request(i)).status);
      expect((rows.read - before) * REQUESTS_PER_MINUTE).toBeLessThan(REPLAYED_PER_MINUTE);
    }
  });
});
