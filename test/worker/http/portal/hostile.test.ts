import { beforeAll, describe, expect, test } from "vitest";
import { AGREED_SUBSCRIPTIONS_MAX } from "../../../../src/contract/limits.ts";
import { isoTime } from "../../../../src/contract/time.ts";
import { FAILURES_LIMIT_MAX } from "../../../../src/history/failing.ts";
import { deployedWith, openWorkspace } from "../../../support/api.ts";
import { DAY_MS, subscribe, subscribeMany } from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";
import { openPortal } from "../../../support/portal.ts";
import { storeEvents } from "../../../support/stored-events.ts";

const NOW = Date.now();
/** Of the portal, per workspace: see `PORTAL_REQUESTS` in wrangler.toml. */
const REQUESTS_PER_MINUTE = 300;
/** What the requests of a minute may read: about a second of the database's time. */
const ROWS_PER_MINUTE = 2_000_000;

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
    ["filtered failures", () => portal.get("/failures?status=410")],
    ["a long page of failures", () => portal.get(`/failures?limit=${FAILURES_LIMIT_MAX}`)],
    ["the counts of failures", () => portal.get("/failure-counts?type=lead.created")],
    ["a delivery", () => portal.get(webhook(`/deliveries/${eventIds[0]}`))],
  ])("%s", async (_, request) => {
    const before = rows.read;
    expect((await request()).status).toBe(200);
    expect((rows.read - before) * REQUESTS_PER_MINUTE).toBeLessThan(ROWS_PER_MINUTE);
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
    const asked = 10;
    const largest = { read: 0 };
    const before = rows.read;
    for (let i = 0; i < asked; i++) {
      const start = rows.read;
      expect([200, 429]).toContain((await request(i)).status);
      largest.read = Math.max(largest.read, rows.read - start);
    }
    expect(largest.read).toBeLessThan(30_000);
    expect(((rows.read - before) / asked) * REQUESTS_PER_MINUTE).toBeLessThan(ROWS_PER_MINUTE);
  });
});
