import { databaseOf } from "./databases.ts";
import { interposed } from "./interposed.ts";
import type { DatabaseName } from "./placement.ts";

/**
 * A database some of whose transactions fail. `act` decides on each: it makes it with `go`, or fails,
 * before or afterwards. `sql` is the text of its statements, followed by their values.
 */
export function failingDatabase(
  name: DatabaseName,
  act: (sql: string, go: () => Promise<unknown>) => Promise<unknown>,
): D1Database {
  return interposed(databaseOf(name), ({ texts, values, alone, go }) => {
    const sql = texts.map((text, i) => `${text} ${JSON.stringify(values[i])}`).join(";\n");
    return alone ? go() : act(sql, go);
  });
}
