import { interposed } from "./interposed.ts";
import { WORKSPACE_DB } from "./placement.ts";

/**
 * D1 that executes queries immediately, but answers when `release` is called; `reading` resolves when
 * an answer is waiting.
 */
export function slowDatabase() {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: reading, resolve: started } = Promise.withResolvers<void>();
  const db = interposed(WORKSPACE_DB, async ({ go }) => {
    const found = await go();
    started();
    await released;
    return found;
  });
  return { db, reading, release };
}
