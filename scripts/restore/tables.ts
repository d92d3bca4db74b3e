import { z } from "@hono/zod-openapi";
import { parseJson, type Wrangler } from "../shared/wrangler.ts";
import type { Row, Tables } from "./statements.ts";

const Rows = z.array(z.record(z.string(), z.union([z.string(), z.number(), z.null()])));
const Executed = z.array(z.object({ results: Rows }));
/** How wrangler reports with `--json` that a call failed. */
const Failed = z.object({
  error: z.object({ text: z.string(), notes: z.array(z.object({ text: z.string() })).default([]) }),
});

/** Selects the audit trail since a time, without recording calls and checks, which are many. */
const trailSince = (at: number) =>
  `SELECT * FROM audit_trail WHERE at >= ${at} AND method NOT LIKE 'record%' AND method NOT IN ('backlog', 'ledger', 'health', 'databases') ORDER BY at`;

/** Runs a statement in a database, named by its binding. @throws Error with wrangler's words. */
export async function query(wrangler: Wrangler, database: string, sql: string): Promise<Row[]> {
  const [rows = []] = await queryEach(wrangler, database, [sql]);
  return rows;
}

/** Runs several statements in one call, because wrangler takes seconds to start. @returns the rows of each. */
async function queryEach(
  wrangler: Wrangler,
  database: string,
  statements: string[],
): Promise<Row[][]> {
  const call = ["d1", "execute", database, "--remote", "--json", "--command"];
  const { ok, stdout, complaint } = await wrangler.ask(...call, statements.join(";\n"));
  const answer = parseJson(stdout);
  const { data } = Executed.safeParse(answer);
  if (ok && data?.length === statements.length) return data.map(({ results }) => results);
  const { error } = Failed.safeParse(answer).data ?? {};
  const reasons = error ? [error.text, ...error.notes.map(({ text }) => text)] : [complaint];
  throw new Error(`${database} cannot be queried:\n${reasons.join("\n")}`);
}

/**
 * Reads the tables with the decisions of people. Keys and the audit trail are in `DB` only.
 *
 * @param at the time from which on the audit trail is read, in Unix milliseconds.
 */
export async function readTables(
  wrangler: Wrangler,
  database: string,
  at: number,
): Promise<Tables> {
  const own = ["SELECT * FROM workspaces", "SELECT * FROM subscriptions"];
  const central = ["SELECT * FROM api_keys", trailSince(at)];
  const isDirectory = database === "DB";
  const [workspaces = [], subscriptions = [], apiKeys = [], trail = []] = isDirectory
    ? await queryEach(wrangler, database, [...own, ...central])
    : await queryEach(wrangler, database, own);
  return {
    workspaces,
    api_keys: apiKeys,
    subscriptions,
    audit_trail: isDirectory ? trail : await query(wrangler, "DB", trailSince(at)),
  };
}
