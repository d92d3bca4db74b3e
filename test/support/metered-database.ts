import { WORKSPACE_DB } from "./placement.ts";

/**
 * The real database, and what goes through it: rows read and written, queries, and the JSON of their
 * results in bytes. `between` runs before the second query.
 */
export function meteredDatabase(between = async () => {}) {
  const rows = { read: 0, written: 0, queries: 0, bytes: 0 };
  const count = (result: D1Result) => {
    rows.read += result.meta.rows_read ?? 0;
    rows.written += result.meta.rows_written ?? 0;
    rows.bytes += JSON.stringify(result.results).length;
  };
  const originals = new WeakMap<object, D1PreparedStatement>();
  const meter = (statement: D1PreparedStatement): D1PreparedStatement => {
    const run = async () => {
      if (++rows.queries === 2) await between();
      const result = await statement.all();
      count(result);
      return result;
    };
    const metered = {
      bind: (...values: unknown[]) => meter(statement.bind(...values)),
      all: run,
      run,
      raw: async () => (await run()).results.map((row) => Object.values(row)),
    } as unknown as D1PreparedStatement;
    originals.set(metered, statement);
    return metered;
  };
  const meterAll = (client: Pick<D1Database, "prepare" | "batch">) => ({
    prepare: (sql: string) => meter(client.prepare(sql)),
    batch: async (statements: D1PreparedStatement[]) => {
      const own = statements.map((statement) => originals.get(statement) ?? statement);
      const results = await client.batch(own);
      results.forEach(count);
      return results;
    },
  });
  const DB = {
    ...meterAll(WORKSPACE_DB),
    withSession(since: string) {
      const session = WORKSPACE_DB.withSession(since);
      return { ...meterAll(session), getBookmark: () => session.getBookmark() };
    },
  } as unknown as D1Database;
  return { DB, rows };
}
