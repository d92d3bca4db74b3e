import { env } from "cloudflare:workers";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { ROWS_IN_FLIGHT_MAX } from "../../../src/http/reads-in-flight.ts";
import { deployedWith, openApi, openWorkspace } from "../../support/api.ts";
import { interposed } from "../../support/interposed.ts";

test.each([
  [100, ROWS_IN_FLIGHT_MAX / 100],
  [25, ROWS_IN_FLIGHT_MAX / 25],
])("an isolate reads a bounded number of pages of %i at once, and answers all", async (...row) => {
  const [limit, most] = row;
  let inFlight = 0;
  let largest = 0;
  const DB = interposed(env.DB, async ({ texts, go }) => {
    if (!texts.some((text) => text.includes('from "leads"'))) return go();
    inFlight++;
    largest = Math.max(largest, inFlight);
    await sleep(20);
    const found = await go();
    inFlight--;
    return found;
  });
  const { apiKey } = await openWorkspace();
  const api = openApi(apiKey, deployedWith({ DB }));
  await api.get("/v1/leads");
  const answers = await Promise.all(
    Array.from({ length: 2 * most }, () => api.get(`/v1/leads?limit=${limit}`)),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect(largest).toBe(most);
});
