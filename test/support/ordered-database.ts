import { WORKSPACE_DB } from "./placement.ts";

/**
 * D1 that executes transactions immediately, but answers in an order chosen by the test.
 */
export function orderedDatabase() {
  const held: ((() => void) | null)[] = [];
  const inTurn = async <T>(result: Promise<T>): Promise<T> => {
    const { promise: turn, resolve } = Promise.withResolvers<void>();
    held.push(resolve);
    await turn;
    return result;
  };
  const db: D1Database = {
    prepare: (query: string) => WORKSPACE_DB.prepare(query),
    batch: (statements: D1PreparedStatement[]) => inTurn(WORKSPACE_DB.batch(statements)),
    withSession: () => db,
    getBookmark: () => null,
  } as unknown as D1Database;
  return {
    db,
    /** How many transactions were made. */
    count: () => held.length,
    /**
     * Lets the answers arrive, always the waiting one that is earliest in `order`, until `done`.
     */
    async releaseInOrder(order: number[], done: Promise<unknown>) {
      let isDone = false;
      const end = done.finally(() => {
        isDone = true;
      });
      while (!isDone) {
        const next =
          order.find((place) => held[place]) ?? held.findIndex((resolve) => resolve !== null);
        held[next]?.();
        held[next] = null;
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      await end;
    },
  };
}
