import { and, type Column, eq, isNotNull, isNull, type SQL, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import type { ExportKind } from "../contract/export.ts";
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
} from "../db/schema.ts";

/** Rows that are exported as items of one kind. */
export interface Exported {
  kind: ExportKind;
  table: SQLiteTable;
  /** Columns that no export shows. */
  secret?: string[];
}

/** Rows of a workspace, in an order of their own. */
export interface Part extends Exported {
  /** Whether they are in the directory, wherever the workspace lives. */
  isOfDirectory?: boolean;
  /** Where those of a workspace come from; several where no one index has them all. */
  sources(workspaceId: string): SQL[];
  /** What tells a row from every other one and never changes. */
  position: Column[];
  /** Rows that one query reads: a page may be exceeded by as many. */
  atOnce: number;
  /** Rows of another table that follow each. */
  nested?: Exported & { where: SQL | undefined };
}

/** Of rows of up to 64 KiB, which escaping may double. */
const LARGE = 25;
const SMALL = 200;

/** The rows of a workspace in a table, or those of them that meet a condition. */
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
    // Of one that is recorded anew it grows: it comes twice rather than not at all.
    position: [automations.createdAt, automations.id],
    atOnce: LARGE,
  },
  {
    kind: "lead",
    table: leads,
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
    // By their events: a delivery may outlive its subscription. IN gives them in order: a join of the
    // list would sort all that is left for each page.
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
    position: [notices.id],
    atOnce: LARGE,
    nested: { kind: "email", table: emails, where: eq(emails.noticeId, notices.id) },
  },
];

/** Tables of which nothing is exported, and why. */
export const NOT_EXPORTED = {
  removals: "which runs of a removed automation wait to be deleted; the automation tells of it",
  sweep_positions: "where the sweep goes on; of no workspace",
  commits: "tokens of transactions; of no workspace",
  moves: "which workspaces are on their way between databases, and how far",
  changes: "which rows were written meanwhile; empty otherwise",
  sizes: "how large the database was; of no workspace",
};

/** The tables whose rows are exported. */
export const EXPORTED_TABLES = PARTS.flatMap(({ table, nested }) =>
  nested ? [table, nested.table] : [table],
);
