import type { D1Client } from "../../src/db/session.ts";
import { WORKSPACE_DB } from "./placement.ts";

/** What is lost: the reply to a committed transaction, or the transaction itself. */
export type Lost = "reply" | "request";

/** D1 that loses its first writing transaction; before that is retried, `meanwhile` happens. */
export function lossyDatabase(lost: Lost, meanwhile: () => Promise<unknown>): D1Database {
  let hasLost = false;
  const texts = new WeakMap<D1PreparedStatement, string>();
  const wrap = <T extends D1Client>(client: T): T =>
    new Proxy(client, {
      get(target, name) {
        if (name === "prepare")
          return (sql: string) => {
            const remember = (statement: D1PreparedStatement): D1PreparedStatement => {
              texts.set(statement, sql);
              const { bind } = statement;
              statement.bind = (...values) => remember(bind.apply(statement, values));
              return statement;
            };
            return remember(target.prepare(sql));
          };
        if (name === "batch")
          return async (statements: D1PreparedStatement[]) => {
            const writes = statements.some((each) => !/^\s*SELECT/i.test(texts.get(each) ?? ""));
            if (hasLost || !writes) return target.batch(statements);
            hasLost = true;
            if (lost === "reply") await target.batch(statements);
            await meanwhile();
            throw new Error("D1_ERROR: Network connection lost.");
          };
        const value = Reflect.get(target, name);
        if (name === "withSession")
          return (since: string) =>
            wrap((value as D1Database["withSession"]).call(WORKSPACE_DB, since));
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  return wrap(WORKSPACE_DB);
}
