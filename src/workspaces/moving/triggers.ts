import { getTableColumns, getTableName } from "drizzle-orm";
import { type ChildTable, MOVED, MOVED_FIELDS, type OwnedTable } from "../manifest.ts";

/*
 * While a workspace moves, triggers note in `changes` which of its rows are written. They refuse writes
 * where it is closed or has arrived, and where its entry says that it lives elsewhere, unless it is
 * arriving. Whoever erases what it left behind makes it arrive within the same transaction only. A write
 * to a child row counts as one to its parent.
 */

type Operation = "insert" | "update" | "delete";

/** The workspace of a row, and its move. */
const OF = "LEFT JOIN moves m ON m.workspace_id = w.id WHERE";

const IS_CLOSED = "m.state IN ('closed', 'arrived')";
const IS_ELSEWHERE = "w.database IS NOT NULL AND m.state IS NOT 'arriving'";
/** Where writes are refused. What a workspace has left behind may be deleted. */
const REFUSED: Record<Operation, string> = {
  insert: `(${IS_CLOSED} OR ${IS_ELSEWHERE})`,
  update: `(${IS_CLOSED} OR ${IS_ELSEWHERE})`,
  delete: IS_CLOSED,
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
WHEN EXISTS (SELECT 1 FROM workspaces w ${OF} w.id = NEW.id AND ${REFUSED.update})
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving');
END;`;
  return [...ofRows, ofWorkspaces];
}

function ofTable(owned: OwnedTable, operation: Operation): string {
  const row = operation === "delete" ? "OLD" : "NEW";
  const source = `workspaces w ${OF} w.id = ${row}.workspace_id`;
  return create(getTableName(owned.table), operation, source, owned, row);
}

/** A trigger of child rows: the change is that of the parent row. */
function ofChild(owned: OwnedTable, { table, links }: ChildTable, operation: Operation): string {
  const columns = getTableColumns(table);
  const isParent = Object.entries(links).map(
    ([name, to]) => `p.${to.name} = NEW.${columns[name]?.name}`,
  );
  const source = `${getTableName(owned.table)} p JOIN workspaces w ON w.id = p.workspace_id
    ${OF} ${isParent.join(" AND ")}`;
  return create(getTableName(table), operation, source, owned, "p");
}

function create(
  table: string,
  operation: Operation,
  source: string,
  { kind, key }: OwnedTable,
  row: string,
): string {
  const values = key.map(({ name }) => `${row}.${name}`).join(", ");
  return `CREATE TRIGGER \`${table}_move_${operation}\` AFTER ${operation.toUpperCase()} ON \`${table}\`
WHEN EXISTS (SELECT 1 FROM ${source} AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM ${source} AND ${REFUSED[operation]};
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, '${kind}', json_array(${values}) FROM ${source} AND m.state IN ('copying', 'draining');
END;`;
}
