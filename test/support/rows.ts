/**
 * Rows that tests insert themselves, because no call reaches their state, or not as often as they need. There is one
 * function for each table. What a test does not give has a default, so that only this file changes with a column.
 */
import { env } from "cloudflare:workers";
import { getTableColumns, getTableName } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import {
  type AnnouncedEmail,
  apiKeys,
  automations,
  deliveries,
  events,
  runs,
  subscriptions,
  workspaces,
} from "../../src/db/schema.ts";
import { chunk } from "../../src/primitives/chunk.ts";
import { WORKSPACE_DB } from "./placement.ts";

/** The e-mail of an announcement, of which a test needs some fields. */
export function announcedEmail(given: Partial<AnnouncedEmail> = {}): AnnouncedEmail {
  return { host: "hooks.example", since: 1, announcedAt: 1, reminders: 0, emails: 1, ...given };
}

/** A row of a table in which these columns are given, and others may be. */
type Row<Table extends SQLiteTable, Given extends keyof Table["$inferInsert"]> = Pick<
  Table["$inferInsert"],
  Given
> &
  Partial<Table["$inferInsert"]>;

/** Rows inserted at once. */
const ROWS_AT_ONCE = 5_000;

/** Inserts rows that all have the same columns. The database has the defaults of the others. */
async function insert<Table extends SQLiteTable>(
  db: D1Database,
  table: Table,
  rows: Table["$inferInsert"][],
): Promise<void> {
  const columns = Object.entries(getTableColumns(table)).filter(
    ([name]) => name in (rows[0] ?? {}),
  );
  const names = columns.map(([, { name }]) => name);
  const fields = columns.map((_, i) => `value->>${i}`);
  const statement = db.prepare(
    `INSERT INTO ${getTableName(table)} (${names}) SELECT ${fields} FROM json_each(?)`,
  );
  for (const some of chunk(rows, ROWS_AT_ONCE)) {
    const values = some.map((row: Record<string, unknown>) =>
      columns.map(([name, column]) => {
        const value = row[name] ?? null;
        return value === null ? null : column.mapToDriverValue(value);
      }),
    );
    await statement.bind(JSON.stringify(values)).run();
  }
}

export function insertWorkspaces(rows: Row<typeof workspaces, "id">[], db = WORKSPACE_DB) {
  return insert(
    db,
    workspaces,
    rows.map((row) => ({ name: "", adminEmails: [], createdAt: 0, ...row })),
  );
}

/** Inserts API keys that nobody has. */
export function insertApiKeys(rows: Row<typeof apiKeys, "id" | "workspaceId">[]) {
  return insert(
    env.DB,
    apiKeys,
    rows.map((row) => ({ keyHash: `hash_${row.id}`, lastFour: "abcd", createdAt: 1, ...row })),
  );
}

export function insertAutomations(rows: Row<typeof automations, "id" | "workspaceId">[]) {
  return insert(
    WORKSPACE_DB,
    automations,
    rows.map((row) => ({
      reference: row.id,
      type: "social_comments" as const,
      provider: "instagram",
      agentId: "agt_1",
      agentName: "",
      name: "",
      status: "draft" as const,
      updatedAt: 0,
      reportedAt: 0,
      createdAt: 0,
      ...row,
    })),
  );
}

export function insertRuns(rows: Row<typeof runs, "id" | "workspaceId" | "automationId">[]) {
  return insert(
    WORKSPACE_DB,
    runs,
    rows.map((row) => ({
      reference: row.id,
      status: "success" as const,
      triggerType: "comment" as const,
      occurredAt: 0,
      actions: [],
      ...row,
    })),
  );
}

/** Inserts subscriptions that list no event type and have no secret. */
export function insertSubscriptions(
  rows: Row<typeof subscriptions, "id" | "workspaceId">[],
  db = WORKSPACE_DB,
) {
  return insert(
    db,
    subscriptions,
    rows.map((row) => ({
      url: "https://hooks.example/",
      events: [],
      sealedSecret: "",
      createdAt: 0,
      ...row,
    })),
  );
}

/** Inserts events that no subscription lists. */
export function insertEvents(rows: Row<typeof events, "id" | "workspaceId">[]) {
  return insert(
    WORKSPACE_DB,
    events,
    rows.map((row) => ({
      type: "lead.created" as const,
      body: "{}",
      owed: [],
      createdAt: 0,
      ...row,
    })),
  );
}

/** Inserts pending deliveries, due at once. */
export function insertDeliveries(
  rows: Row<typeof deliveries, "subscriptionId" | "eventId" | "workspaceId">[],
) {
  return insert(
    WORKSPACE_DB,
    deliveries,
    rows.map((row) => ({
      type: "lead.created" as const,
      state: "pending" as const,
      dueAt: 0,
      ...row,
    })),
  );
}
