import { getTableName } from "drizzle-orm";
import { MOVED, MOVED_FIELDS } from "../manifest.ts";

/** The statements that create all triggers. The migrations must create exactly these. */
export function createTriggers(): string[] {
  const ofRows = MOVED.flatMap(({ table }) =>
    (["INSERT", "UPDATE", "DELETE"] as const).map((operation) => {
      const { name, row } = {
        name: getTableName(table),
        row: operation === "DELETE" ? "OLD" : "NEW",
      };
      return refuse(
        name,
        operation,
        `(SELECT hold FROM workspaces WHERE id = ${row}.workspace_id)`,
      );
    }),
  );
  const columns = Object.values(MOVED_FIELDS).map(({ name }) => name);
  return [...ofRows, refuse("workspaces", `UPDATE OF ${columns.join(", ")}`, "OLD.hold")];
}

/** A trigger that refuses writes while their workspace is closed. Child rows are written with their parents. */
function refuse(table: string, operation: string, hold: string): string {
  const [verb = ""] = operation.toLowerCase().split(" ");
  return `CREATE TRIGGER \`${table}_${verb}_closed\` BEFORE ${operation} ON \`${table}\`
WHEN ${hold} = 'closed'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;`;
}
