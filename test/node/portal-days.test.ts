import { afterAll, beforeAll, expect, test } from "vitest";
import { periodOf } from "../../site/portal/filters.ts";

const zone = process.env.TZ;
beforeAll(() => {
  process.env.TZ = "America/Los_Angeles";
});
afterAll(() => {
  if (zone === undefined) delete process.env.TZ;
  else process.env.TZ = zone;
});

test.each([
  ["today", "2026-11-29T01:00:00Z", "2026-11-28T08:00:00.000Z", null],
  ["yesterday", "2026-11-29T01:00:00Z", "2026-11-27T08:00:00.000Z", "2026-11-28T08:00:00.000Z"],
  ["week", "2026-11-29T01:00:00Z", "2026-11-22T08:00:00.000Z", null],
  // The clocks go back on the first of November, so this day has 25 hours.
  ["yesterday", "2026-11-02T20:00:00Z", "2026-11-01T07:00:00.000Z", "2026-11-02T08:00:00.000Z"],
])("The portal's filter %s at %s is of the reader's time zone", (when, now, since, until) => {
  const period = periodOf(new URLSearchParams({ when }), Date.parse(now));
  expect(period).toEqual({ since, until });
});
