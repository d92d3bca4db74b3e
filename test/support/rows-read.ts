import { env } from "cloudflare:workers";
import { type D1Client, openDatabase } from "../../src/db/client.ts";

/** The real database, and the rows that it counts as read. */
export function countingDatabase() {
  const counted = { rows: 0 };
  const texts = new WeakMap<object, D1PreparedStatement>();
  const count = <R extends D1Result>(result: R): R => {
    counted.rows += result.meta.rows_read;
    return result;
  };
  const wrap = (statement: D1PreparedStatement): D1PreparedStatement => {
    const wrapped = {
      bind: (...values: unknown[]) => wrap(statement.bind(...values)),
      all: async () => count(await statement.all()),
      run: async () => count(await statement.run()),
      raw: async () =>
        count(await statement.all<Record<string, unknown>>()).results.map((row) =>
          Object.values(row),
        ),
    } as unknown as D1PreparedStatement;
    texts.set(wrapped, statement);
    return wrapped;
  };
  const client = {
    prepare: (query: string) => wrap(env.DB.prepare(query)),
    batch: async (statements: D1PreparedStatement[]) => {
      const real = statements.map((statement) => texts.get(statement) as D1PreparedStatement);
      return (await env.DB.batch(real)).map(count);
    },
  } as D1Client;
  return { counted, database: openDatabase(client) };
}
