import { describe, expect, test } from "vitest";
import { explainFailure, FAILURES } from "../../../src/history/failures.ts";

const AT = "2026-01-05T12:00:00.000Z";
const LANGUAGES = ["en", "fr"] as const;

describe.each(LANGUAGES)("In %s, an attempt", (language) => {
  test.each<[outcome: string, status: number | null, entry: keyof typeof FAILURES]>([
    ["timed_out", null, "timed_out"],
    ["unreachable", null, "unreachable"],
    // Cloudflare's own statuses, in place of the endpoint's.
    ["unreachable", 403, "unreachable 403"],
    ["unreachable", 404, "unreachable"],
    ["unreachable", 521, 521],
    ["unreachable", 527, "unreachable"],
    ["answered", 300, 300],
    ["answered", 302, "3xx"],
    ["answered", 304, 304],
    ["answered", 403, 403],
    ["answered", 400, "4xx"],
    ["answered", 503, "5xx"],
    ["refused", null, "refused"],
    ["unreadable", null, "unreadable"],
    ["overflow", null, "overflow"],
  ])("that ended as %s with %s is explained as `%s`", (outcome, status, entry) => {
    const [means, todo] = FAILURES[entry][language];
    expect(explainFailure({ outcome, status }, language)).toEqual({ means, todo });
  });
});

test("No two failures are explained alike", () => {
  for (const language of LANGUAGES) {
    const texts = Object.values(FAILURES).map((entry) => entry[language][0]);
    expect(new Set(texts).size).toBe(texts.length);
  }
});

describe.each([
  [
    "Mon, 05 Jan 2026 11:54:00 GMT",
    "Your server rejected the delivery, and its clock is 6 minutes slow, so it probably rejects our timestamp.",
    "Votre serveur a refusé la livraison, et son horloge retarde de 6\u00a0minutes\u00a0: il refuse sans doute notre horodatage.",
  ],
  [
    "Mon, 05 Jan 2026 13:00:00 GMT",
    "Your server rejected the delivery, and its clock is 60 minutes fast, so it probably rejects our timestamp.",
    "Votre serveur a refusé la livraison, et son horloge avance de 60\u00a0minutes\u00a0: il refuse sans doute notre horodatage.",
  ],
])("A server that says it is %s", (date, en, fr) => {
  test.each([400, 401, 403, 422])("and rejects us with %i has its clock named", (status) => {
    const ended = { outcome: "answered", status, at: AT, date };
    expect(explainFailure(ended, "en")).toEqual({
      means: en,
      todo: "Set its clock, and keep it right with NTP.",
    });
    expect(explainFailure(ended, "fr")).toEqual({
      means: fr,
      todo: "Réglez son horloge et synchronisez-la par NTP.",
    });
  });
});

test.each([
  ["Mon, 05 Jan 2026 11:55:00 GMT", "answered", 401],
  ["Mon, 05 Jan 2026 12:05:00 GMT", "answered", 401],
  ["Mon, 05 Jan 2026 11:00:00 GMT", "answered", 500],
  ["Mon, 05 Jan 2026 11:00:00 GMT", "unreachable", 403],
  ["nonsense", "answered", 401],
  [null, "answered", 401],
])(
  "A server that says it is %s and ended as %s with %i has a right clock, as far as we know",
  (date, outcome, status) => {
    const ended = { outcome, status };
    expect(explainFailure({ ...ended, at: AT, date }, "en")).toEqual(explainFailure(ended, "en"));
  },
);
