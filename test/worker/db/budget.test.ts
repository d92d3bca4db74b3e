import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { expect, test, vi } from "vitest";
import { Platform } from "../../../scripts/shared/limited-worker.ts";
import { Budget, STATEMENTS_MAX } from "../../../src/db/budget.ts";
import { qb } from "../../../src/db/builder.ts";
import { combine, commit, connect } from "../../../src/db/client.ts";
import { openDatabase } from "../../../src/db/databases.ts";
import { workspaces } from "../../../src/db/schema.ts";
import { isolated } from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { DATABASE } from "../../support/placement.ts";
import { shortenTimers } from "../../support/timers.ts";

/** Executes so many statements in one batch, which spends them from a budget. */
function execute(budget: Budget, statements: number): Promise<void> {
  return executeIn(budget.meter(isolated().env), statements);
}

/** Executes so many statements in one batch, through metered bindings. */
async function executeIn(metered: Env, statements: number): Promise<void> {
  const db = openDatabase(metered, DATABASE);
  const one = qb.select({ id: workspaces.id }).from(workspaces).limit(1);
  await commit(db, combine(Array.from({ length: statements }, () => one)));
}

test("a budget is used up by each statement of a batch, and by those of its shares", async () => {
  const budget = new Budget(60_000, 20);
  const share = budget.share(10);
  await execute(share, 6);
  expect([share.hasMore(4), share.hasMore(5)]).toEqual([true, false]);
  await execute(budget, 4);
  expect([budget.hasMore(10), budget.hasMore(11)]).toEqual([true, false]);
});

test("a budget is used up by time, and a share ends with its whole", () => {
  const clock = vi.spyOn(performance, "now").mockReturnValue(0);
  const budget = new Budget(100);
  clock.mockReturnValue(50);
  const share = budget.share(100);
  clock.mockReturnValue(99);
  expect([budget.hasMore(), share.hasMore()]).toEqual([true, true]);
  clock.mockReturnValue(100);
  expect([budget.hasMore(), share.hasMore()]).toEqual([false, false]);
});

test.each(["all", "raw", "run"] as const)("a single query counts, too: %s", async (method) => {
  const budget = new Budget(60_000, 10);
  const { DB } = budget.meter(isolated().env);
  await DB.prepare("SELECT 1").bind()[method]();
  expect([budget.hasMore(9), budget.hasMore(10)]).toEqual([true, false]);
});

test("a query that is repeated counts each time, and no more often than without a budget", async () => {
  const budget = new Budget(60_000, 10);
  shortenTimers((ms) => ms > 0);
  let tries = 0;
  const DB = interposed(env.DB, () => {
    tries++;
    throw new Error("D1_ERROR: Network connection lost.");
  });
  const { DB: metered } = budget.meter({ ...env, DB });
  await expect(connect(metered).all(sql`SELECT 1`)).rejects.toThrow("Failed query");
  expect([tries, budget.hasMore(6), budget.hasMore(7)]).toEqual([4, true, false]);
});

test("more statements than D1 allows an invocation fail, before they reach it", async () => {
  const whole = new Budget(60_000);
  await execute(whole.share(10), STATEMENTS_MAX);
  await expect(execute(whole, 1)).rejects.toThrow("more than 1000 statements");
});

/** The Platform API in the tests and in `npm start`, and the bindings of a call. */
function openLimited() {
  const platform = new Platform(createExecutionContext(), isolated().env);
  const { env: bindings } = platform as unknown as { env: Env };
  return { platform, bindings };
}

test("a call in the tests and in npm start is held to the limit", async () => {
  const { platform, bindings } = openLimited();
  await executeIn(bindings, STATEMENTS_MAX - 1);
  // It executes two.
  await expect(platform.ledger({})).rejects.toThrow("more than 1000 statements");
});

test("a call in the tests and in npm start has a limit of its own", async () => {
  await executeIn(openLimited().bindings, STATEMENTS_MAX);
  await openLimited().platform.ledger({});
});
