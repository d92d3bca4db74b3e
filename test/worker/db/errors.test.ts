import { describe, expect, test, vi } from "vitest";
import { openDatabase, retryTransient } from "../../../src/db/client.ts";
import { D1_ERRORS, isTransient } from "../../../src/db/errors.ts";
import { EarlySession } from "../../../src/db/session.ts";
import { listLeads } from "../../../src/records/leads.ts";
import { observedDatabase } from "../../support/deliveries.ts";

/** A query that fails once. */
function failing(error: Error) {
  return vi.fn<() => Promise<string>>().mockRejectedValueOnce(error).mockResolvedValue("found");
}

const rows = Object.fromEntries(D1_ERRORS.map((rule) => [rule.message, rule.fault]));

describe("a D1 error", () => {
  test("is one of those that Cloudflare lists, or the runtime's own", () => {
    expect(rows).toEqual({
      "D1 DB reset because its code was updated.": "nobody",
      "Internal error while starting up D1 DB storage caused object to be reset.": "nobody",
      "Network connection lost.": "nobody",
      "Internal error in D1 DB storage caused object to be reset.": "nobody",
      "Cannot resolve D1 DB due to transient issue on remote node.": "nobody",
      "Can't read from request stream because client disconnected.": "nobody",
      "D1 DB storage operation exceeded timeout which caused object to be reset.": "query",
      "D1 DB is overloaded. Requests queued for too long.": "load",
      "D1 DB is overloaded. Too many requests queued.": "load",
      "D1 DB's isolate exceeded its memory limit and was reset.": "query",
      "D1 DB exceeded its CPU time limit and was reset.": "query",
      "internal error; reference =": "nobody",
    });
  });

  test.each(Object.entries(rows))("is handled as listed: %s", async (message, fault) => {
    const error = new Error(`D1_ERROR: ${message}`);
    const query = failing(error);
    if (fault === "nobody") expect(await retryTransient(query)).toBe("found");
    else await expect(retryTransient(query)).rejects.toBe(error);
    expect(query).toHaveBeenCalledTimes(fault === "nobody" ? 2 : 1);
    expect(isTransient(error)).toBe(fault !== "query");
  });

  test.each(["no such table: leads", "UNIQUE constraint failed", "disk I/O error"])(
    "that is not listed is not retried: %s",
    async (message) => {
      const error = new Error(`D1_ERROR: ${message}: SQLITE_ERROR`);
      const query = failing(error);
      await expect(retryTransient(query)).rejects.toBe(error);
      expect(query).toHaveBeenCalledTimes(1);
      expect(isTransient(error)).toBe(false);
    },
  );
});

test.each([
  ["x", { retryable: true }, true],
  ["x", { durableObjectReset: true }, true],
  ["Network connection lost.", {}, true],
  ["Network connection lost.", { retryable: true, overloaded: true }, false],
  ["Network connection lost.", { remote: true }, false],
])("a Durable Object's error %j with %j is retried: %s", async (message, marks, isRetried) => {
  const call = failing(Object.assign(new Error(message), marks));
  await retryTransient(call).catch(() => {});
  expect(call).toHaveBeenCalledTimes(isRetried ? 2 : 1);
});

test("a read that is refused because its admission failed is not repeated", async () => {
  const { DB, trips } = observedDatabase();
  const lost = new Error("Network connection lost.");
  const db = openDatabase(new EarlySession({ binding: DB, bookmark: null }, Promise.reject(lost)));
  await expect(listLeads(db, "", "wks_1", { limit: 25, after: null })).rejects.toBe(lost);
  expect(trips).toHaveLength(1);
});
