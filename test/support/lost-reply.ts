import { interposed } from "./interposed.ts";
import { WORKSPACE_DB } from "./placement.ts";

/** The lost message: the reply to a committed transaction, or the request with the transaction. */
export type Lost = "reply" | "request";

/** D1 that loses its first writing transaction; before that is retried, `meanwhile` happens. */
export function lossyDatabase(lost: Lost, meanwhile: () => unknown = () => {}): D1Database {
  let hasLost = false;
  return interposed(WORKSPACE_DB, async ({ texts, alone, go }) => {
    if (hasLost || alone || texts.every((text) => /^\s*SELECT/i.test(text))) return go();
    hasLost = true;
    if (lost === "reply") await go();
    await meanwhile();
    throw new Error("D1_ERROR: Network connection lost.");
  });
}
