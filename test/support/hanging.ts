import { env } from "cloudflare:workers";
import { databaseOf, NAMES } from "./databases.ts";
import { interposed } from "./interposed.ts";
import type { DatabaseName } from "./placement.ts";

/** A transaction: in a database, with a text like this. */
export type Moment = [database: DatabaseName, sql: RegExp];

/**
 * The deployment as somebody sees it who hangs right before the first transaction of the moment, and
 * goes on when `release` is called. Its calls in between get no answer before.
 */
export function hangingBefore([database, sql]: Moment) {
  const hung = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<unknown>();
  let isOver = false;
  const hanging = (name: DatabaseName) =>
    interposed(databaseOf(name), async ({ texts, alone, go }) => {
      if (alone) return go();
      if (isOver) await released.promise;
      else if (name === database && sql.test(texts.join(";\n"))) {
        isOver = true;
        hung.resolve();
        await released.promise;
        const results = go();
        arrived.resolve(results.catch(() => {}));
        return results;
      }
      return go();
    });
  const databases = Object.fromEntries(NAMES.map((name) => [name, hanging(name)]));
  return {
    env: { ...env, ...databases },
    hung: hung.promise,
    /** Returns when that transaction has been made, or has failed. */
    release: async () => {
      released.resolve();
      await arrived.promise;
    },
  };
}
