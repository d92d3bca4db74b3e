import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { READ_MAX_MS } from "../../../src/contract/limits.ts";
import { app } from "../../../src/http/app.ts";
import { ROWS_IN_FLIGHT_MAX, WORKSPACE_ROWS_MAX } from "../../../src/http/read-limits.ts";
import { deployedWith, openApi, openWorkspace, Platform, recordLead } from "../../support/api.ts";
import { jumpTo } from "../../support/deliveries.ts";
import { interposed, interposedObjects } from "../../support/interposed.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { shortenTimers } from "../../support/timers.ts";
import { until } from "../../support/until.ts";

/** The Worker with a slow database, and the largest number of pages of leads that it read at once. */
function counted() {
  const reads = { inFlight: 0, largest: 0 };
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    if (!texts.some((text) => text.includes('from "leads"'))) return go();
    reads.largest = Math.max(reads.largest, ++reads.inFlight);
    await sleep(20);
    const found = await go();
    reads.inFlight--;
    return found;
  });
  return { reads, fetch: deployedWith({ DB }) };
}

test.each([
  [100, ROWS_IN_FLIGHT_MAX / 100],
  [25, ROWS_IN_FLIGHT_MAX / 25],
])(
  "an isolate reads a bounded number of pages of %i at once, and responds to all",
  async (...row) => {
    const [limit, most] = row;
    const { reads, fetch } = counted();
    const workspaces = await Promise.all([openWorkspace(), openWorkspace(), openWorkspace()]);
    const apis = workspaces.map(({ apiKey }) => openApi(apiKey, fetch));
    for (const api of apis) await api.get("/v1/leads");
    const answers = await Promise.all(
      Array.from({ length: 3 * most }, (_, i) => apis[i % 3]?.get(`/v1/leads?limit=${limit}`)),
    );
    expect(new Set(answers.map((answer) => answer?.status))).toEqual(new Set([200]));
    expect(reads.largest).toBe(most);
  },
);

test("the reads of one workspace leave room for those of another", async () => {
  const { reads, fetch } = counted();
  const [hostile, other] = [await openWorkspace(), await openWorkspace()];
  const api = openApi(hostile.apiKey, fetch);
  await api.get("/v1/leads");
  let isOver = false;
  const flood = Promise.all(Array.from({ length: 60 }, () => api.get("/v1/leads?limit=100"))).then(
    (answers) => {
      isOver = true;
      return answers;
    },
  );
  await until(() => reads.inFlight > 0);
  const { status } = await openApi(other.apiKey, fetch).get("/v1/leads?limit=100");
  expect({ status, isOver }).toEqual({ status: 200, isOver: false });
  expect(new Set((await flood).map((answer) => answer.status))).toEqual(new Set([200]));
  expect(reads.largest).toBe(WORKSPACE_ROWS_MAX / 100 + 1);
});

/** The Worker whose reads of leads end when the test calls what they add to `held`. */
function holding() {
  const held: (() => void)[] = [];
  const hold = { isOn: false };
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    if (hold.isOn && texts.some((text) => text.includes('from "leads"')))
      await new Promise<void>((resolve) => held.push(resolve));
    return go();
  });
  return { held, hold, fetch: deployedWith({ DB }) };
}

test("the reads of several workspaces together leave room for those of another", async () => {
  const { held, hold, fetch } = holding();
  const workspaces = await Promise.all([openWorkspace(), openWorkspace(), openWorkspace()]);
  const apis = workspaces.map(({ apiKey }) => openApi(apiKey, fetch));
  for (const api of apis) await api.get("/v1/leads");
  hold.isOn = true;
  const [other, ...hostile] = apis.map((api) => () => api.get("/v1/leads?limit=100"));
  const flood = hostile.flatMap((read) => Array.from({ length: 20 }, read));
  await until(() => held.length === 6);
  const answer = other?.();
  await sleep(100);
  expect(held).toHaveLength(6);
  // The first of them makes room for a page, and the next page is that of the other workspace.
  held[0]?.();
  await until(() => held.length === 7);
  held[6]?.();
  const first = await Promise.race([answer, sleep(5_000)]);
  hold.isOn = false;
  for (const release of held) release();
  expect(first?.status).toBe(200);
  expect(new Set((await Promise.all(flood)).map(({ status }) => status))).toEqual(new Set([200]));
});

test("a read that has waited for ten seconds reads nothing any more", async () => {
  const { held, hold, fetch } = holding();
  const api = openApi((await openWorkspace()).apiKey, fetch);
  await api.get("/v1/leads");
  hold.isOn = true;
  const now = Date.now();
  jumpTo(now);
  const timers = shortenTimers(READ_MAX_MS);
  // Three of them take all rows that a workspace may have in flight.
  const answers = Array.from({ length: 4 }, () => api.get("/v1/leads?limit=100"));
  await until(() => held.length === 3);
  jumpTo(now + READ_MAX_MS + 1);
  await sleep(200);
  timers.mockRestore();
  expect(held).toHaveLength(3);
  for (const release of held) release();
  for (const { status } of await Promise.all(answers)) expect(status).toBe(500);
});

test("a read that waits for room reads nothing once its key is revoked", async () => {
  const { apiKey, keyId, workspaceId } = await openWorkspace();
  await recordLead(workspaceId);
  const released = Promise.withResolvers<void>();
  let [isHeld, isRevoked] = [false, false];
  let [reading, admitted, readAfterwards] = [0, 0, 0];
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    if (!isHeld || !texts.some((text) => text.includes('from "leads"'))) return go();
    if (isRevoked) readAfterwards++;
    const found = await go();
    reading++;
    await released.promise;
    return found;
  });
  const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
    const answer = await go();
    admitted++;
    return answer;
  });
  const api = openApi(apiKey, deployedWith({ DB, KEY_GATE }));
  await api.get("/v1/leads");
  [admitted, isHeld] = [0, true];
  // Three of them take all rows that a workspace may have in flight.
  const asked = Array.from({ length: 4 }, () => api.get("/v1/leads?limit=100"));
  await until(() => reading === 3 && admitted === 4);
  await Platform.revokeApiKey({ keyId });
  isRevoked = true;
  released.resolve();
  const statuses = (await Promise.all(asked)).map(({ status }) => status);
  expect(statuses.toSorted()).toEqual([200, 200, 200, 401]);
  expect(readAfterwards).toBe(0);
});

test("the room of reads that stall is free again after ten seconds", async () => {
  const { apiKey } = await openWorkspace();
  const released = Promise.withResolvers<void>();
  let [stalls, stalled] = [false, 0];
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    if (stalls && texts.some((text) => text.includes('from "leads"'))) {
      stalled++;
      await released.promise;
    }
    return go();
  });
  const api = openApi(apiKey, deployedWith({ DB }));
  await api.get("/v1/leads");
  stalls = true;
  const now = Date.now();
  jumpTo(now);
  // Three of them take all rows that a workspace may have in flight.
  const stalling = Array.from({ length: 3 }, () => api.get("/v1/leads?limit=100"));
  await until(() => stalled === 3);
  stalls = false;
  const waiting = api.get("/v1/leads?limit=100").then(({ status }) => status);
  expect(await Promise.race([waiting, sleep(100, "waits")])).toBe("waits");
  jumpTo(now + READ_MAX_MS);
  expect(await Promise.race([waiting, sleep(5_000, "waits")])).toBe(200);
  released.resolve();
  await Promise.all(stalling);
});

test.each([
  ["a new key", false],
  ["a cached key", true],
])("a read with %s ends after ten seconds, even if the key's gate stalls", async (_, isCached) => {
  const { apiKey } = await openWorkspace();
  let stalls = false;
  const released = Promise.withResolvers<void>();
  const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
    if (stalls) await released.promise;
    return go();
  });
  const context = createExecutionContext();
  const fetch = async (request: Request) => app.fetch(request, { ...env, KEY_GATE }, context);
  const api = openApi(apiKey, fetch);
  if (isCached) expect((await api.get("/v1/leads")).status).toBe(200);
  stalls = true;
  const timers = shortenTimers(READ_MAX_MS);
  const answer = api.get("/v1/leads").then(({ status }) => status);
  const first = await Promise.race([answer, sleep(5_000, "no response")]);
  released.resolve();
  await answer;
  await waitOnExecutionContext(context);
  timers.mockRestore();
  expect(first).toBe(500);
});
