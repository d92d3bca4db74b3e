import { getTableName } from "drizzle-orm";
import { leads } from "../db/schema.ts";
import { MOVED, MOVED_FIELDS } from "../workspaces/table-registry.ts";

/** Returns the statements that create all triggers. The migrations must create exactly these. */
export function createTriggers(): string[] {
  const ofRows = MOVED.flatMap(({ table }) =>
    (["INSERT", "UPDATE", "DELETE"] as const).map((operation) => {
      const name = getTableName(table);
      if (table === leads && operation === "UPDATE") return LEADS_NEVER_CHANGE;
      const row = operation === "DELETE" ? "OLD" : "NEW";
      return refuse(
        name,
        operation,
        `(SELECT write_lock FROM workspaces WHERE id = ${row}.workspace_id)`,
      );
    }),
  );
  const columns = Object.values(MOVED_FIELDS).map(({ name }) => name);
  return [...ofRows, refuse("workspaces", `UPDATE OF ${columns.join(", ")}`, "OLD.write_lock")];
}

/** The trigger that rejects all updates of leads, because bodies of events are made from their rows. */
const LEADS_NEVER_CHANGE = `CREATE TRIGGER \`leads_never_change\` BEFORE UPDATE ON \`leads\`
BEGIN
	SELECT RAISE(ABORT, 'a lead never changes');
END;`;

/** Returns a trigger that rejects writes while their workspace is locked. Child rows are written with their parents. */
function refuse(table: string, operation: string, lock: string): string {
  const [verb = ""] = operation.toLowerCase().split(" ");
  return `CREATE TRIGGER \`${table}_${verb}_locked\` BEFORE ${operation} ON \`${table}\`
WHEN ${lock} = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;`;
}
