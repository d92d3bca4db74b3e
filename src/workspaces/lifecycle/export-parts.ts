import { and, type Column, eq, isNotNull, isNull, type SQL, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { list } from "../../db/builder.ts";
import {
  apiKeys,
  attempts,
  automations,
  deliveries,
  earlierSecrets,
  emails,
  events,
  leads,
  notices,
  runs,
  subscriptions,
  workspaces,
} from "../../db/schema.ts";
import type { ExportKind } from "../export-item.ts";

/** A table that is exported as items of one kind. */
export interface Exported {
  kind: ExportKind;
  table: SQLiteTable;
  /** Columns that are never exported. */
  secret?: string[];
}

/** A table's rows of one workspace, in a fixed order. */
export interface Part extends Exported {
  /** Whether they are in the directory, wherever the workspace lives. */
  isOfDirectory?: boolean;
  /** Where those of a workspace come from; several where no one index has them all. */
  sources(workspaceId: string): SQL[];
  /** Columns that identify a row and never change. */
  position: Column[];
  /** Rows per query; a page may exceed its limit by this many. */
  atOnce: number;
  /** Rows of another table that follow each row. */
  nested?: Exported & { where: SQL | undefined };
}

/** For rows of up to 64 KiB, which JSON escaping may double. */
const LARGE = 25;
const SMALL = 200;

/** A workspace's rows in a table; with conditions, one source for each. */
function ofWorkspace(table: SQLiteTable & { workspaceId: Column }, ...conditions: SQL[]) {
  return (id: string) =>
    (conditions.length === 0 ? [undefined] : conditions).map(
      (condition) => sql`${table} WHERE ${and(eq(table.workspaceId, id), condition)}`,
    );
}

export const PARTS: Part[] = [
  {
    kind: "workspace",
    table: workspaces,
    secret: ["dataKey"],
    sources: (id) => [sql`${workspaces} WHERE ${workspaces.id} = ${id}`],
    position: [workspaces.id],
    atOnce: SMALL,
  },
  {
    kind: "api_key",
    table: apiKeys,
    isOfDirectory: true,
    secret: ["keyHash"],
    sources: ofWorkspace(apiKeys),
    position: [apiKeys.createdAt, apiKeys.id],
    atOnce: SMALL,
  },
  {
    kind: "webhook",
    table: subscriptions,
    secret: ["sealedSecret"],
    sources: ofWorkspace(
      subscriptions,
      isNull(subscriptions.deletedAt),
      isNotNull(subscriptions.deletedAt),
    ),
    position: [subscriptions.createdAt, subscriptions.id],
    atOnce: SMALL,
    nested: {
      kind: "webhook_secret",
      table: earlierSecrets,
      secret: ["sealedSecret"],
      where: eq(earlierSecrets.subscriptionId, subscriptions.id),
    },
  },
  {
    kind: "automation",
    table: automations,
    sources: ofWorkspace(
      automations,
      sql`${automations.removedAt} IS NULL AND ${automations.type} <> 'crm_source'`,
      sql`${automations.removedAt} IS NULL AND ${automations.type} = 'crm_source'`,
      isNotNull(automations.removedAt),
    ),
    // `createdAt` is renewed when an automation is recorded again: it may appear twice, but is
    // never missed.
    position: [automations.createdAt, automations.id],
    atOnce: LARGE,
  },
  {
    kind: "lead",
    table: leads,
    secret: ["sealed"],
    sources: ofWorkspace(leads),
    position: [leads.createdAt, leads.id],
    atOnce: LARGE,
  },
  {
    kind: "run",
    table: runs,
    sources: ofWorkspace(runs, sql`${runs.crm} = 0`, sql`${runs.crm} = 1`),
    position: [runs.occurredAt, runs.id],
    atOnce: LARGE,
  },
  {
    kind: "event",
    table: events,
    sources: ofWorkspace(events),
    position: [events.id],
    atOnce: LARGE,
  },
  {
    kind: "delivery",
    table: deliveries,
    // By event, because a delivery may outlive its subscription. IN returns the rows in order;
    // joining the list would sort all remaining rows for each page.
    sources: (id) => [
      sql`${events} CROSS JOIN ${deliveries}
      WHERE ${events.workspaceId} = ${id} AND ${deliveries.eventId} = ${events.id}
        AND ${deliveries.subscriptionId} IN (SELECT value FROM json_each(${events.owed}))`,
    ],
    position: [events.id, deliveries.subscriptionId],
    atOnce: SMALL,
    nested: {
      kind: "attempt",
      table: attempts,
      where: and(
        eq(attempts.subscriptionId, deliveries.subscriptionId),
        eq(attempts.eventId, deliveries.eventId),
      ),
    },
  },
  {
    kind: "notice",
    table: notices,
    sources: ofWorkspace(notices),
    // Not by `id`, which differs between databases.
    position: [notices.subscriptionId, notices.failingSince, notices.kind],
    atOnce: LARGE,
    nested: { kind: "email", table: emails, where: eq(emails.noticeId, notices.id) },
  },
];

/** The position of a row within its part. */
export type Position = (string | number)[];

/**
 * The rows of a part behind a position, in order, as `selected` says, and the position of each for
 * `positionOf`.
 */
export function selectRows(
  { sources, position }: Part,
  workspaceId: string,
  selected: SQL[],
  after: Position | null,
  limit: number,
): SQL {
  const names = namesOf(position);
  const places = position.map((column, i) => sql`${column} AS ${names[i]}`);
  const behind = after
    ? sql`AND (${list(position)}) > (${list(after.map((value) => sql`${value}`))})`
    : sql``;
  // Raw SQL: the table and its columns vary.
  const selects = sources(workspaceId).map(
    (source) => sql`SELECT ${list([...selected, ...places])} FROM ${source} ${behind}`,
  );
  return sql`${sql.join(selects, sql` UNION ALL `)} ORDER BY ${list(names)} LIMIT ${limit}`;
}

/** The names under which `selectRows` returns positions. */
export function namesOf(position: Column[]): SQL[] {
  return position.map((_, i) => sql.raw(`p${i}`));
}

/** The position of a row that `selectRows` returned. */
export function positionOf({ position }: Part, row: Record<string, unknown>): Position {
  return position.map((_, i) => row[`p${i}`] as string | number);
}

/** Tables that are not exported, and why. */
export const NOT_EXPORTED = {
  removals: "which runs of a removed automation wait to be deleted; the automation tells of it",
  sweep_positions: "where the sweep goes on; of no workspace",
  commits: "tokens of transactions; of no workspace",
  moves: "which workspaces are on their way between databases, and how far",
  changes: "which rows were written meanwhile; empty otherwise",
  sizes: "how large the database was; of no workspace",
};

/** The tables that are exported. */
export const EXPORTED_TABLES = PARTS.flatMap(({ table, nested }) =>
  nested ? [table, nested.table] : [table],
);
