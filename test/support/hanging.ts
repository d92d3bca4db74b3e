import { env } from "cloudflare:workers";
import { type DatabaseName, databaseOf, NAMES } from "./databases.ts";

/** A transaction of a mover: the database, and the text of its statements. */
type Describe = (database: DatabaseName, sql: string) => boolean;

/**
 * The deployment as somebody sees it who hangs right before the first transaction that `isIt`
 * describes, and wakes up when `release` is called; nothing that it asks in between is answered before.
 */
export function hangingBefore(isIt: Describe) {
  const hung = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<unknown>();
  let isOver = false;
  const bindings = NAMES.map((name) => {
    const database = databaseOf(name);
    const texts = new WeakMap<D1PreparedStatement, string>();
    const wrapped = {
      prepare(sql: string) {
        const remember = (statement: D1PreparedStatement): D1PreparedStatement => {
          texts.set(statement, sql);
          const { bind } = statement;
          statement.bind = (...values) => remember(bind.apply(statement, values));
          return statement;
        };
        return remember(database.prepare(sql));
      },
      async batch(statements: D1PreparedStatement[]) {
        const sql = statements.map((statement) => texts.get(statement)).join(";\n");
        if (isOver) await released.promise;
        else if (isIt(name, sql)) {
          isOver = true;
          hung.resolve();
          await released.promise;
          const results = database.batch(statements);
          arrived.resolve(results.catch(() => {}));
          return results;
        }
        return database.batch(statements);
      },
      withSession: () => wrapped,
      getBookmark: () => null,
    };
    return [name, wrapped] as const;
  });
  return {
    env: { ...env, ...Object.fromEntries(bindings) } as unknown as Env,
    hung: hung.promise,
    /** Returns when that transaction has been made, or has failed. */
    release: async () => {
      released.resolve();
      await arrived.promise;
    },
  };
}
