import { interposed } from "./interposed.ts";
import { WORKSPACE_DB } from "./placement.ts";

/** The lost message: the reply to a committed transaction, or the request with the transaction. */
export type Lost = "reply" | "request";

/** D1 that loses its first write; before that is retried, `meanwhile` happens. */
export function lossyDatabase(lost: Lost, meanwhile: () => unknown = () => {}): D1Database {
  let hasLost = false;
  return interposed(WORKSPACE_DB, async ({ texts, go }) => {
    if (hasLost || !texts.some((text) => /^\s*(insert|update|delete)/i.test(text))) return go();
    hasLost = true;
    if (lost === "reply") await go();
    await meanwhile();
    throw new Error("D1_ERROR: Network connection lost.");
  });
}
