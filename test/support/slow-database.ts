import { WORKSPACE_DB } from "./placement.ts";

/**
 * D1 that executes queries immediately, but answers when `release` is called; `reading` resolves when
 * an answer is waiting.
 */
export function slowDatabase() {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: reading, resolve: started } = Promise.withResolvers<void>();
  const later = async <T>(result: T | Promise<T>): Promise<T> => {
    const rows = await result;
    started();
    await released;
    return rows;
  };
  const hold = (statement: D1PreparedStatement): D1PreparedStatement =>
    new Proxy(statement, {
      get(target, property) {
        const method = Reflect.get(target, property);
        if (typeof method !== "function") return method;
        return (...parameters: unknown[]) => {
          const result = method.apply(target, parameters);
          if (property === "bind") return hold(result);
          return later(result);
        };
      },
    });
  const db: D1Database = {
    prepare: (query: string) => hold(WORKSPACE_DB.prepare(query)),
    batch: (statements: D1PreparedStatement[]) => later(WORKSPACE_DB.batch(statements)),
    withSession: () => db,
    getBookmark: () => null,
  } as unknown as D1Database;
  return { db, reading, release };
}
