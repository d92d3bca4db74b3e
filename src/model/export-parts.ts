import { type SQL, sql } from "drizzle-orm";
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
  /** Where those of a workspace come from, as `t`; several where no one index has them all. */
  sources(workspaceId: string): SQL[];
  /** What tells a row from every other one and never changes. */
  position: SQL[];
  /** Rows that one query reads: a page may be exceeded by as many. */
  atOnce: number;
  /** Rows of another table, as `n`, that follow each. */
  nested?: Exported & { where: SQL };
}

/** Of rows of up to 64 KiB, which escaping may double. */
const LARGE = 25;
const SMALL = 200;

const own = (workspaceId: string) => sql`t.workspace_id = ${workspaceId}`;

export const PARTS: Part[] = [
  {
    kind: "workspace",
    table: workspaces,
    sources: (id) => [sql`${workspaces} AS t WHERE t.id = ${id}`],
    position: [sql`t.id`],
    atOnce: SMALL,
  },
  {
    kind: "api_key",
    table: apiKeys,
    secret: ["keyHash"],
    sources: (id) => [sql`${apiKeys} AS t WHERE ${own(id)}`],
    position: [sql`t.created_at`, sql`t.id`],
    atOnce: SMALL,
  },
  {
    kind: "webhook",
    table: subscriptions,
    secret: ["sealedSecret"],
    sources: (id) =>
      [sql`t.deleted_at IS NULL`, sql`t.deleted_at IS NOT NULL`].map(
        (some) => sql`${subscriptions} AS t WHERE ${own(id)} AND ${some}`,
      ),
    position: [sql`t.created_at`, sql`t.id`],
    atOnce: SMALL,
    nested: {
      kind: "webhook_secret",
      table: earlierSecrets,
      secret: ["sealedSecret"],
      where: sql`n.subscription_id = t.id`,
    },
  },
  {
    kind: "automation",
    table: automations,
    sources: (id) =>
      [
        sql`t.removed_at IS NULL AND t.type <> 'crm_source'`,
        sql`t.removed_at IS NULL AND t.type = 'crm_source'`,
        sql`t.removed_at IS NOT NULL`,
      ].map((some) => sql`${automations} AS t WHERE ${own(id)} AND ${some}`),
    // Of one that is recorded anew it grows: it comes twice rather than not at all.
    position: [sql`t.created_at`, sql`t.id`],
    atOnce: LARGE,
  },
  {
    kind: "lead",
    table: leads,
    sources: (id) => [sql`${leads} AS t WHERE ${own(id)}`],
    position: [sql`t.created_at`, sql`t.id`],
    atOnce: LARGE,
  },
  {
    kind: "run",
    table: runs,
    sources: (id) =>
      [sql`t.crm = 0`, sql`t.crm = 1`].map(
        (some) => sql`${runs} AS t WHERE ${own(id)} AND ${some}`,
      ),
    position: [sql`t.occurred_at`, sql`t.id`],
    atOnce: LARGE,
  },
  {
    kind: "event",
    table: events,
    sources: (id) => [sql`${events} AS t WHERE ${own(id)}`],
    position: [sql`t.id`],
    atOnce: LARGE,
  },
  {
    kind: "delivery",
    table: deliveries,
    // By their events: a delivery may outlive its subscription. IN gives them in order: a join of the
    // list would sort all that is left for each page.
    sources: (id) => [
      sql`${events} AS e CROSS JOIN ${deliveries} AS t
      WHERE e.workspace_id = ${id} AND t.event_id = e.id
        AND t.subscription_id IN (SELECT value FROM json_each(e.owed))`,
    ],
    position: [sql`e.id`, sql`t.subscription_id`],
    atOnce: SMALL,
    nested: {
      kind: "attempt",
      table: attempts,
      where: sql`n.subscription_id = t.subscription_id AND n.event_id = t.event_id`,
    },
  },
  {
    kind: "notice",
    table: notices,
    sources: (id) => [sql`${notices} AS t WHERE ${own(id)}`],
    position: [sql`t.id`],
    atOnce: LARGE,
    nested: { kind: "email", table: emails, where: sql`n.notice_id = t.id` },
  },
];

/** Tables of which nothing is exported, and why. */
export const NOT_EXPORTED = {
  removals: "which runs of a removed automation wait to be deleted; the automation tells of it",
  sweep_positions: "where the sweep goes on; of no workspace",
  commits: "tokens of transactions; of no workspace",
};

/** The tables whose rows are exported. */
export const EXPORTED_TABLES = PARTS.flatMap(({ table, nested }) =>
  nested ? [table, nested.table] : [table],
);
