import { getTableColumns, getTableName } from "drizzle-orm";
import { type ChildTable, MOVED, MOVED_FIELDS, type OwnedTable } from "../manifest.ts";

/*
 * While a workspace moves, triggers note in `changes` which of its rows are written, and refuse writes
 * to a database that it is leaving or has left. A write to a child row counts as one to its parent.
 */

type Operation = "insert" | "update" | "delete";

/** The states in which writes are refused. What a workspace has left behind may be deleted. */
const REFUSED: Record<Operation, string> = {
  insert: "'closed', 'arrived', 'gone', 'left'",
  update: "'closed', 'arrived', 'gone', 'left'",
  delete: "'closed', 'arrived'",
};

/** The statements that create all triggers. The migrations must create exactly these. */
export function createTriggers(): string[] {
  const ofRows = MOVED.flatMap((owned) => [
    ...(["insert", "update", "delete"] as const).map((operation) => ofTable(owned, operation)),
    ...owned.children
      .filter(({ changesAlone }) => changesAlone)
      .flatMap((child) => [ofChild(owned, child, "insert"), ofChild(owned, child, "update")]),
  ]);
  const columns = Object.values(MOVED_FIELDS)
    .map(({ name }) => name)
    .join(", ");
  const ofWorkspaces = `CREATE TRIGGER \`workspaces_move_update\` AFTER UPDATE OF ${columns} ON \`workspaces\`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.id AND state IN (${REFUSED.update}))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving');
END;`;
  return [...ofRows, ofWorkspaces];
}

function ofTable(owned: OwnedTable, operation: Operation): string {
  const row = operation === "delete" ? "OLD" : "NEW";
  const move = `moves m WHERE m.workspace_id = ${row}.workspace_id`;
  return create(getTableName(owned.table), operation, move, owned, row);
}

/** The parent row has the same position as `NEW` has otherwise. */
function ofChild(owned: OwnedTable, { table, links }: ChildTable, operation: Operation): string {
  const columns = getTableColumns(table);
  const isParent = Object.entries(links).map(
    ([name, to]) => `p.${to.name} = NEW.${columns[name]?.name}`,
  );
  const move = `${getTableName(owned.table)} p JOIN moves m ON m.workspace_id = p.workspace_id
    WHERE ${isParent.join(" AND ")}`;
  return create(getTableName(table), operation, move, owned, "p");
}

function create(
  table: string,
  operation: Operation,
  move: string,
  { kind, key }: OwnedTable,
  row: string,
): string {
  const values = key.map(({ name }) => `${row}.${name}`).join(", ");
  return `CREATE TRIGGER \`${table}_move_${operation}\` AFTER ${operation.toUpperCase()} ON \`${table}\`
WHEN EXISTS (SELECT 1 FROM ${move})
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM ${move} AND m.state IN (${REFUSED[operation]});
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, '${kind}', json_array(${values}) FROM ${move} AND m.state IN ('copying', 'draining');
END;`;
}
