import { expect, test, vi } from "vitest";
import { D1_ERRORS, isTemporary, retryTransient } from "../../../src/db/errors.ts";
import { shortenTimers } from "../../support/timers.ts";

/** What becomes of a query that fails once, and how often it is made. */
async function retried(error: Error) {
  const query = vi.fn<() => Promise<string>>().mockRejectedValueOnce(error);
  query.mockResolvedValue("found");
  const outcome = await retryTransient(query).catch((thrown) => thrown);
  return { outcome, times: query.mock.calls.length };
}

const RULES = {
  "D1 DB reset because its code was updated.": "transient",
  "Internal error while starting up D1 DB storage caused object to be reset.": "transient",
  "Network connection lost.": "transient",
  "Internal error in D1 DB storage caused object to be reset.": "transient",
  "Cannot resolve D1 DB due to transient issue on remote node.": "transient",
  "Can't read from request stream because client disconnected.": "transient",
  "D1 DB storage operation exceeded timeout which caused object to be reset.": "query",
  "D1 DB is overloaded. Requests queued for too long.": "load",
  "D1 DB is overloaded. Too many requests queued.": "load",
  "D1 DB's isolate exceeded its memory limit and was reset.": "query",
  "D1 DB exceeded its CPU time limit and was reset.": "query",
  "internal error; reference =": "transient",
};

test("The delay before each try is twice that before the last one", async () => {
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  // Deliveries of an earlier file may still set timers in this runtime, but none of such a length.
  const isOfRetry = (ms: number) => ms > 0 && ms % 1_009 === 0;
  const timers = shortenTimers(isOfRetry);
  const lost = () => Promise.reject(new Error("Network connection lost."));
  await expect(retryTransient(lost, { waitMs: 1_009 })).rejects.toThrow();
  const delays = timers.mock.calls.map(([, ms]) => ms ?? 0).filter(isOfRetry);
  expect(delays).toEqual([1_009, 2_018, 4_036]);
});

test("the D1 errors are those that Cloudflare lists, and the runtime's own", () => {
  expect(Object.fromEntries(D1_ERRORS.map(({ message, fault }) => [message, fault]))).toEqual(
    RULES,
  );
});

test.each([
  ...Object.entries(RULES),
  ["no such table: leads: SQLITE_ERROR", "query"],
  ["UNIQUE constraint failed: SQLITE_ERROR", "query"],
  ["disk I/O error: SQLITE_ERROR", "query"],
])("a D1 error is retried if it is transient, and not otherwise: %s (%s)", async (...row) => {
  const [message, fault] = row;
  const error = new Error(`D1_ERROR: ${message}`);
  const isRetried = fault === "transient";
  expect(await retried(error)).toEqual(
    isRetried ? { outcome: "found", times: 2 } : { outcome: error, times: 1 },
  );
  expect(isTemporary(error)).toBe(fault !== "query");
});

test.each([
  ["x", { retryable: true }, 2],
  ["x", { durableObjectReset: true }, 2],
  ["Network connection lost.", {}, 2],
  ["Durable Object reset because its code was updated.", {}, 2],
  ["The Durable Object's code has been updated, this version can no longer access storage.", {}, 2],
  ["Network connection lost.", { retryable: true, overloaded: true }, 1],
  ["Network connection lost.", { remote: true }, 1],
])("a call that a Durable Object fails with %j and %j is made this often: %i", async (...row) => {
  const [message, marks, times] = row;
  expect(await retried(Object.assign(new Error(message), marks))).toMatchObject({ times });
});
