import { expect, test } from "vitest";
import { isoTime } from "../../../src/contract/time.ts";
import { Lead } from "../../../src/records/leads.ts";

const IsoTime = Lead.shape.created_at;

test("a time is formatted as ISO 8601, UTC, with the suffix Z", () => {
  expect(isoTime(0)).toBe("1970-01-01T00:00:00.000Z");
  expect(isoTime(1_773_480_413_589)).toBe("2026-03-14T09:26:53.589Z");
  expect(isoTime(-1)).toBe("1969-12-31T23:59:59.999Z");
});

test("the public shape of a time has no offset and no missing parts", () => {
  expect(IsoTime.safeParse(isoTime(1_773_480_413_589)).success).toBe(true);
  for (const text of ["2026-03-14T09:26:53+01:00", "2026-03-14T09:26:53", "2026-03-14", ""])
    expect(IsoTime.safeParse(text).success).toBe(false);
});
