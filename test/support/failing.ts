import { type DatabaseName, databaseOf } from "./databases.ts";

/**
 * Decides on a transaction: makes it with `go`, or fails, before or afterwards. `sql` is the text of its
 * statements, followed by their values.
 */
type Act = (sql: string, go: () => Promise<unknown>) => Promise<unknown>;

/** A database some of whose transactions fail. */
export function failingDatabase(name: DatabaseName, act: Act): D1Database {
  const database = databaseOf(name);
  const texts = new WeakMap<D1PreparedStatement, string>();
  const remember = (statement: D1PreparedStatement, text: string): D1PreparedStatement => {
    texts.set(statement, text);
    const { bind } = statement;
    statement.bind = (...values) =>
      remember(bind.apply(statement, values), `${text} ${JSON.stringify(values)}`);
    return statement;
  };
  const wrapped = {
    prepare: (sql: string) => remember(database.prepare(sql), sql),
    batch: (statements: D1PreparedStatement[]) =>
      act(statements.map((each) => texts.get(each)).join(";\n"), () => database.batch(statements)),
    withSession: () => wrapped,
    getBookmark: () => null,
  };
  return wrapped as unknown as D1Database;
}

/** A transient error of D1. The transaction may have been committed. */
export const lost = () => new Error("D1_ERROR: Network connection lost.");
