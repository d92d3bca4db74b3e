import { countedCall, interposed } from "./interposed.ts";
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
  const DB = interposed(WORKSPACE_DB, async (call) => {
    if (call.alone && ++rows.queries === 2) await between();
    return countedCall(call, count);
  });
  return { DB, rows };
}
