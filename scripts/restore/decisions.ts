import type { ChangedFields } from "../../src/db/schema.ts";
import type { PlatformMethod } from "../../src/platform/operations.ts";
import type { Placements } from "./placements.ts";
import type { Row, Tables } from "./statements.ts";

/** The actor of the calls of a restore in the audit trail. */
export const ACTOR = "npm run restore";

/** The tables that a restore compares. */
export interface Compared {
  /** The tables before the restore. */
  noted: Tables;
  /** The restored database, as it is now. */
  found: Tables;
  placements: Placements;
  /** The restored time, in Unix milliseconds. */
  restoredTo: number;
  /** Whether rows of settings stay as of then, because what people have changed since then is the damage. */
  skipsSettings: boolean;
}

/** A method, or a field of a subscription that a method changes, such as `updateWebhook.url`. */
export type Decision = PlatformMethod | `${PlatformMethod}.${keyof ChangedFields}`;

/** Decisions by the ids that they are about. */
export interface Decisions {
  /** Whether one of these decisions was made for an id. */
  has(id: Row[string] | undefined, decisions: readonly Decision[]): boolean;
}

/**
 * Finds the decisions that were made since the tables were noted: the calls in the audit trail that the notes do not
 * have. Much time may pass until a restore that has failed is run again. These decisions are the newer ones, so the
 * restore neither undoes them nor repeats a call that is among them. Its own calls count, too, unless they failed.
 */
export function findLaterDecisions({ noted, found }: Pick<Compared, "noted" | "found">): Decisions {
  const known = new Set(noted.audit_trail.map(({ id }) => id));
  const made = new Set<string>();
  for (const { id, method, workspace_id, ids, actor, result, after } of found.audit_trail) {
    if (known.has(id)) continue;
    // A failed call may have had its effect. A rejected one had none.
    if (result !== "ok" && (result !== "failed" || actor === ACTOR)) continue;
    const fields = Object.keys(JSON.parse(String(after ?? "{}")));
    const decisions = [method, ...fields.map((field) => `${method}.${field}`)];
    for (const about of [workspace_id, ...(JSON.parse(String(ids)) as string[])])
      for (const decision of decisions) made.add(`${decision} ${about}`);
  }
  return { has: (id, decisions) => decisions.some((each) => made.has(`${each} ${id}`)) };
}
