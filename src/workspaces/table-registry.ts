import { and, type Column, eq, getTableColumns, type SQL, sql } from "drizzle-orm";
import { getTableConfig, type SQLiteTable } from "drizzle-orm/sqlite-core";
import * as schema from "../db/schema.ts";
import {
  announcements,
  apiKeys,
  attempts,
  automations,
  deliveries,
  deliveryCounts,
  erasedLeads,
  events,
  leads,
  runs,
  subscriptions,
  workspaces,
} from "../db/schema.ts";

/** What the manifest says about each table with data of workspaces. */
interface Stored {
  table: SQLiteTable;
  /** What an export calls its rows, and what moves do. */
  kind: string;
  /** Columns that are never exported as they are. */
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
  /** Whether its rows stay where they are when their workspace moves. */
  stays?: true;
  /** Whether its rows are in the directory, wherever their workspace lives. */
  isInDirectory?: true;
  /** The table through whose rows its own are found, and with which they are erased. `ranges` joins the two. */
  through?: typeof events;
  /** SQL expression: how many rows are found through a row of that table. */
  countedBy?: SQL;
}

/**
 * A child table: each row belongs to a row of the table that `links` points to, and is exported, moved and
 * erased with it.
 */
export interface ChildTable extends Stored {
  /** The columns of the row that it belongs to, by the names of its own. */
  links: Record<string, Column>;
}

type Schema = typeof schema;
/** A table's entry in the manifest. */
type Entry = Omit<Owned, "table"> | Omit<ChildTable, "table"> | string;
type TableName = {
  [K in keyof Schema]: Schema[K] extends SQLiteTable ? K : never;
}[keyof Schema];

/**
 * Every table: what it has of a workspace, or why it has nothing. Exports, moves, erasures and the
 * triggers of moves are loops over this list, in this order, in which no row refers to a later one;
 * erasures go backwards.
 */
const MANIFEST = {
  workspaces: {
    kind: "workspace",
    key: [workspaces.id],
    order: [workspaces.id],
    stays: true,
    secret: [workspaces.dataKey],
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
    // Whoever has the key could repeat the request, and be shown the secret.
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
    // `createdAt` is renewed when an automation is recorded again: an export may show it twice, but
    // never misses it.
    order: [automations.createdAt, automations.id],
  },
  leads: {
    kind: "lead",
    key: [leads.id],
    order: [leads.createdAt, leads.id],
    // Exported decrypted.
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
    // Because a delivery may outlive its subscription. IN returns the rows in order; joining the list
    // would sort all remaining rows for each page.
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
    // The response, which its receiver knows.
    secret: [attempts.response],
  },
  deliveryCounts: {
    kind: "delivery_count",
    key: [deliveryCounts.workspaceId, deliveryCounts.subscriptionId, deliveryCounts.day],
    order: [deliveryCounts.subscriptionId, deliveryCounts.day],
  },
  announcements: {
    kind: "announcement",
    key: [announcements.subscriptionId, announcements.kind],
    order: [announcements.subscriptionId, announcements.kind],
  },
  sweepPositions: "where the sweep continues",
  moves: "which workspaces are moving between databases, and how far they are",
  auditTrail: "who called which operation, which outlives the workspace that it was about",
} as const satisfies Record<TableName, Entry>;

/** What an export calls the rows of a table. */
export type ExportKind = Extract<(typeof MANIFEST)[TableName], { kind: unknown }>["kind"];

/** A table of the manifest with rows of workspaces. */
export interface OwnedTable extends Owned {
  /** The id of the workspace that a row belongs to. */
  owner: Column;
  children: ChildTable[];
}

const TABLES: Record<TableName, SQLiteTable> = schema;
const entries = Object.entries<Entry>(MANIFEST).flatMap(([name, entry]) =>
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

/** The entry of a table with rows of workspaces. */
export function ownedTable(table: SQLiteTable): OwnedTable {
  return OWNED.find((owned) => owned.table === table) as OwnedTable;
}

/** The tables whose rows move with their workspace, in order. */
export const MOVED = OWNED.filter(({ stays }) => !stays);

/** What exports call the rows of each table, in order. */
export const EXPORT_KINDS = entries.map(({ kind }) => kind) as ExportKind[];

// Omitted: columns about the row's location.
const {
  database: _1,
  writeLock: _2,
  moveId: _3,
  erasing: _4,
  ...fields
} = getTableColumns(workspaces);

/** The columns of a workspace's row that move with it. */
export const MOVED_FIELDS = fields;

/** SQL condition: the child row belongs to the row of the other table. */
export function isLinked({ table, links }: ChildTable): SQL | undefined {
  const columns = getTableColumns(table) as Record<string, Column>;
  return and(...Object.entries(links).map(([name, to]) => eq(columns[name] as Column, to)));
}

/** The columns in which rows of a table refer to other rows of their workspace. */
function referencesOf(table: SQLiteTable): { column: Column; to: Column; in: SQLiteTable }[] {
  return getTableConfig(table).foreignKeys.flatMap((key) => {
    const { columns, foreignColumns, foreignTable } = key.reference();
    if (foreignTable === workspaces) return [];
    return [{ column: columns[0] as Column, to: foreignColumns[0] as Column, in: foreignTable }];
  });
}

/** The nullable columns in which rows refer to rows of a table. */
export function referencesTo(table: SQLiteTable): { column: Column; to: Column }[] {
  const all = OWNED.flatMap((owned) => referencesOf(owned.table));
  return all.filter((reference) => reference.in === table && !reference.column.notNull);
}
