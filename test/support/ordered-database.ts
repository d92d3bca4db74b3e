import { env } from "cloudflare:workers";

/** D1 whose queries are done at once, but whose answers arrive in an order of the test's choosing. */
export function orderedDatabase() {
  const held: ((() => void) | null)[] = [];
  const hold = (statement: D1PreparedStatement): D1PreparedStatement =>
    new Proxy(statement, {
      get(target, property) {
        const method = Reflect.get(target, property);
        if (typeof method !== "function") return method;
        return (...parameters: unknown[]) => {
          const result = method.apply(target, parameters);
          if (property === "bind") return hold(result);
          const { promise: turn, resolve } = Promise.withResolvers<void>();
          held.push(resolve);
          return Promise.all([result, turn]).then(([rows]) => rows);
        };
      },
    });
  const db: D1Database = {
    prepare: (query: string) => hold(env.DB.prepare(query)),
    withSession: () => db,
    getBookmark: () => null,
  } as unknown as D1Database;
  return {
    db,
    /** Lets the answers arrive, the waiting one that is earliest in `order` first, until `done`. */
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
