import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { ROWS_IN_FLIGHT_MAX, WORKSPACE_ROWS_MAX } from "../../../src/http/read-limits.ts";
import { deployedWith, openApi, openWorkspace } from "../../support/api.ts";
import { interposed } from "../../support/interposed.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
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
])("an isolate reads a bounded number of pages of %i at once, and answers all", async (...row) => {
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
});

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
