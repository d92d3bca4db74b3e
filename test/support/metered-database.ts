import { interposed } from "./interposed.ts";
import { WORKSPACE_DB } from "./placement.ts";

/**
 * The real database, and what goes through it: rows read and written, statements, queries outside
 * a transaction, and the JSON of their results in bytes. `between` runs before the second query.
 */
export function meteredDatabase(between = async () => {}) {
  const rows = { read: 0, written: 0, statements: 0, queries: 0, bytes: 0 };
  const count = ({ meta, results }: D1Result) => {
    rows.statements++;
    rows.read += meta.rows_read ?? 0;
    rows.written += meta.rows_written ?? 0;
    rows.bytes += JSON.stringify(results).length;
  };
  const DB = interposed(WORKSPACE_DB, async ({ alone, go }) => {
    if (!alone) {
      const results: D1Result[] = await go();
      results.forEach(count);
      return results;
    }
    if (++rows.queries === 2) await between();
    // `raw` would not say what it read.
    const result = await alone.statement.all<object>();
    count(result);
    return alone.method === "raw" ? result.results.map((row) => Object.values(row)) : result;
  });
  return { DB, rows };
}
