import { expect, test } from "vitest";
import { explainFailure } from "../../../src/history/failures.ts";

const AT = "2026-01-05T12:00:00.000Z";

test.each([
  ["unreachable", 403, /host name in the URL, not an IP address/],
  ["answered", 403, /no firewall or bot protection/],
  ["unreachable", 521, /refused the connection/],
  ["unreachable", null, /No connection/],
  ["overflow", null, /too many deliveries to your server were waiting/],
  ["answered", 300, /several addresses/],
  ["answered", 304, /nothing has changed/],
  ["answered", 302, /redirects are not followed/],
  ["answered", 401, /clock/],
  ["answered", 400, /clock/],
])("An attempt that ended as %s with %s is explained as what it is", (outcome, status, text) => {
  const { means, todo } = explainFailure({ outcome, status }, "en");
  expect(`${means} ${todo}`).toMatch(text);
});

test.each([
  ["Mon, 05 Jan 2026 11:50:00 GMT", 401, "10 minutes slow"],
  ["Mon, 05 Jan 2026 13:00:00 GMT", 400, "60 minutes fast"],
])(
  "A server that says it is %s and rejects us with %i has its clock named",
  (date, status, text) => {
    const { means, todo } = explainFailure({ outcome: "answered", status, at: AT, date }, "en");
    expect(means).toContain(text);
    expect(todo).toContain("NTP");
    expect(explainFailure({ outcome: "answered", status, at: AT, date }, "fr").means).toMatch(
      /horloge (avance|retarde) de \d+\u00a0minutes/,
    );
  },
);

test.each([
  ["Mon, 05 Jan 2026 11:55:00 GMT", 401],
  ["Mon, 05 Jan 2026 11:00:00 GMT", 500],
  ["nonsense", 401],
  [null, 401],
])(
  "A server that says it is %s and responds with %i has a right clock, as far as we know",
  (date, status) => {
    const ended = { outcome: "answered", status };
    expect(explainFailure({ ...ended, at: AT, date }, "en")).toEqual(explainFailure(ended, "en"));
  },
);
