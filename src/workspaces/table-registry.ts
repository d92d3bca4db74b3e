import { and, type Column, eq, getTableColumns, type SQL, sql } from "drizzle-orm";
import { getTableConfig, type SQLiteTable } from "drizzle-orm/sqlite-core";
import * as schema from "../db/schema.ts";
import {
  apiKeys,
  attempts,
  automations,
  deliveries,
  erasedLeads,
  events,
  leads,
  replays,
  runs,
  subscriptions,
  workspaces,
} from "../db/schema.ts";

/** The entry of a table with data of workspaces. */
interface Stored {
  table: SQLiteTable;
  /** The name of its rows in exports and moves. */
  kind: string;
  /** Columns that an export leaves out, or decrypts. */
  secret?: Column[];
}

/** A table with rows of workspaces. */
interface Owned extends Stored {
  /** The unique columns that identify a row in any database. */
  key: Column[];
  /** The order of a workspace's rows. The columns are in an index, and identify a row within it. */
  order: Column[];
  /** SQL conditions, each with an index for its rows. Together they cover all rows. */
  ranges?: SQL[];
  /** Whether its rows stay in their database when their workspace moves. */
  stays?: true;
  /** Whether its rows are in the directory, wherever their workspace lives. */
  isInDirectory?: true;
  /** The table whose rows lead to its own, which are erased with them. `ranges` joins the two. */
  through?: typeof events;
  /** SQL expression: the number of rows that belong to a row of the `through` table. */
  countedBy?: SQL;
}

/**
 * A child table. Each row belongs to a row of the table that `links` points to, and is exported, moved and erased with
 * it.
 */
export interface ChildTable extends Stored {
  /** The columns of the row that it belongs to, by the names of its own. */
  links: Record<string, Column>;
}

type Schema = typeof schema;
/** The entry of a table in the registry; a text says why a table has no data of workspaces. */
type Entry = Omit<Owned, "table"> | Omit<ChildTable, "table"> | string;
type TableName = {
  [K in keyof Schema]: Schema[K] extends SQLiteTable ? K : never;
}[keyof Schema];

/**
 * The table registry: every table with the data of workspaces that it has, or the reason why it has none. Exports,
 * moves, erasures and the triggers of moves are loops over this list. No row refers to a row of a later table, so
 * erasures go backwards.
 */
const REGISTRY = {
  workspaces: {
    kind: "workspace",
    key: [workspaces.id],
    order: [workspaces.id],
    stays: true,
    secret: [workspaces.sealedDataKey],
  },
  apiKeys: {
    kind: "api_key",
    key: [apiKeys.id],
    order: [apiKeys.createdAt, apiKeys.id],
    stays: true,
    isInDirectory: true,
    secret: [apiKeys.keyHash],
  },
  subscriptions: {
    kind: "webhook",
    key: [subscriptions.id],
    order: [subscriptions.createdAt, subscriptions.id],
    ranges: [sql`${subscriptions.deletedAt} IS NULL`, sql`${subscriptions.deletedAt} IS NOT NULL`],
    // The `Idempotency-Key` is secret, because a client that repeats the request with it is shown the secret.
    secret: [
      subscriptions.sealedSecret,
      subscriptions.earlierSecrets,
      subscriptions.sealedHeaders,
      subscriptions.idempotencyKey,
    ],
  },
  automations: {
    kind: "automation",
    key: [automations.id],
    // `createdAt` is renewed when an automation is recorded again, so an export may have it twice, but never misses
    // it.
    order: [automations.createdAt, automations.id],
    ranges: [sql`${automations.removedAt} IS NULL`, sql`${automations.removedAt} IS NOT NULL`],
  },
  leads: {
    kind: "lead",
    key: [leads.id],
    order: [leads.createdAt, leads.id],
    // An export has the personal data decrypted.
    secret: [leads.sealed],
  },
  erasedLeads: {
    kind: "erased_lead",
    key: [erasedLeads.workspaceId, erasedLeads.id],
    order: [erasedLeads.id],
  },
  runs: {
    kind: "run",
    key: [runs.id],
    order: [runs.occurredAt, runs.id],
  },
  events: {
    kind: "event",
    key: [events.workspaceId, events.id],
    order: [events.id],
  },
  deliveries: {
    kind: "delivery",
    key: [deliveries.subscriptionId, deliveries.eventId],
    order: [events.id, deliveries.subscriptionId],
    // Deliveries are found through their events, because a delivery may outlive its subscription. `IN` returns the
    // rows in order; joining the list would sort all remaining rows for each page.
    through: events,
    ranges: [
      sql`${deliveries.eventId} = ${events.id}
        AND ${deliveries.subscriptionId} IN (SELECT value FROM json_each(${events.owed}))`,
    ],
    countedBy: sql`json_array_length(${events.owed})`,
  },
  attempts: {
    kind: "attempt",
    links: { subscriptionId: deliveries.subscriptionId, eventId: deliveries.eventId },
    // The owner of the endpoint has its response already.
    secret: [attempts.response],
  },
  replays: {
    kind: "replay",
    key: [replays.workspaceId, replays.subscriptionId, replays.id],
    order: [replays.subscriptionId, replays.id],
  },
  sweepPositions: "The table has the positions of the scheduled job.",
  moves: "The table has the progress of moves.",
  auditTrail: "The audit trail outlives the workspaces that it is about.",
} as const satisfies Record<TableName, Entry>;

/** The name of a table's rows in exports. */
export type ExportKind = Extract<(typeof REGISTRY)[TableName], { kind: unknown }>["kind"];

/** A table of the registry with rows of workspaces. */
export interface OwnedTable extends Owned {
  /** The id of the workspace that a row belongs to. */
  owner: Column;
  children: ChildTable[];
}

const TABLES: Record<TableName, SQLiteTable> = schema;
const entries = Object.entries<Entry>(REGISTRY).flatMap(([name, entry]) =>
  typeof entry === "string" ? [] : { ...entry, table: TABLES[name as TableName] },
);

/** All tables with rows of workspaces, in order. */
export const OWNED: OwnedTable[] = entries
  .filter((entry) => "key" in entry)
  .map((entry) => {
    const columns: Record<string, Column> = getTableColumns(entry.through ?? entry.table);
    const owner = (columns.workspaceId ?? columns.id) as Column;
    const children = entries
      .filter((other) => "links" in other)
      .filter(({ links }) => Object.values(links)[0]?.table === entry.table);
    return { ...entry, owner, children };
  });

/** Returns the entry of a table with rows of workspaces. */
export function ownedTable(table: SQLiteTable): OwnedTable {
  return OWNED.find((owned) => owned.table === table) as OwnedTable;
}

/** The tables whose rows move with their workspace, in order. */
export const MOVED = OWNED.filter(({ stays }) => !stays);

/** The names of the rows of each table in exports, in order. */
export const EXPORT_KINDS = entries.map(({ kind }) => kind) as ExportKind[];

// The omitted columns are about the database of the row, and about requests that write to that database.
const {
  database: _1,
  writeLock: _2,
  moveId: _3,
  erasing: _4,
  revokedKeys: _5,
  ...fields
} = getTableColumns(workspaces);

/** The columns of a workspace's row that move with it. */
export const MOVED_FIELDS = fields;

/** SQL condition: the child row belongs to the row of the other table. */
export function isLinked({ table, links }: ChildTable): SQL | undefined {
  const columns = getTableColumns(table) as Record<string, Column>;
  return and(...Object.entries(links).map(([name, to]) => eq(columns[name] as Column, to)));
}

/** Lists the columns in which rows of a table refer to other rows of their workspace. */
function referencesOf(table: SQLiteTable): { column: Column; to: Column; in: SQLiteTable }[] {
  return getTableConfig(table).foreignKeys.flatMap((key) => {
    const { columns, foreignColumns, foreignTable } = key.reference();
    if (foreignTable === workspaces) return [];
    return [{ column: columns[0] as Column, to: foreignColumns[0] as Column, in: foreignTable }];
  });
}

/** Lists the nullable columns in which rows refer to rows of a table. */
export function referencesTo(table: SQLiteTable): { column: Column; to: Column }[] {
  const all = OWNED.flatMap((owned) => referencesOf(owned.table));
  return all.filter((reference) => reference.in === table && !reference.column.notNull);
}
