import { z } from "@hono/zod-openapi";
import { and, type Column, eq, isNull, type SQL, sql } from "drizzle-orm";
import {
  REDELIVERIES_PER_HOUR,
  SUBSCRIPTIONS_MAX,
  TEST_EVENTS_PER_MINUTE,
} from "../contract/limits.ts";
import { HOUR_MS, isoTime, MINUTE_MS } from "../contract/time.ts";
import { inJson, qb } from "../db/builder.ts";
import { combine, commit, counted, type Database, readAs, type Statements } from "../db/client.ts";
import { DIRECTORY, openDirectory } from "../db/databases.ts";
import { isOnPage, mapItems, type Page, type PageRequest, preparePage } from "../db/page.ts";
import { type Administrator, subscriptions, workspaces } from "../db/schema.ts";
import { beingErased, queryIfReachable } from "./placement.ts";

/*
 * Workspaces: their rows and access. The other files of this folder:
 *
 * - placement.ts finds the database where a workspace lives.
 * - key-rows.ts has the rows of API keys, data-keys.ts the data encryption key, and rewrap.ts re-encrypts data keys.
 * - audit-trail.ts has the calls and changes.
 * - write-guard.ts checks in the transaction of a write that it may still be made.
 * - table-registry.ts lists the tables with data of workspaces, and rows.ts reads their rows.
 */

/** Inserts a workspace that has access to the service. @param workspace the row, with an encrypted data key. */
export async function insertWorkspace(
  db: Database,
  workspace: typeof workspaces.$inferInsert & { sealedDataKey: string },
) {
  await commit(db, qb.insert(workspaces).values(workspace).onConflictDoNothing());
}

/** Inserts the directory entry of a workspace that lives in another database, unless there is one. */
export function insertEntry(
  { id, createdAt }: { id: string; createdAt: number },
  database: string,
) {
  const entry = {
    id,
    createdAt,
    database,
    writeLock: "locked" as const,
    name: "",
    adminEmails: [],
  };
  return qb.insert(workspaces).values(entry).onConflictDoNothing();
}

/** Reads when the oldest workspace was created, in Unix milliseconds; null if there is none. */
export async function findOldestWorkspace(db: Database): Promise<number | null> {
  const { createdAt } = workspaces;
  const [oldest] = await db.select({ createdAt }).from(workspaces).orderBy(createdAt).limit(1);
  return oldest?.createdAt ?? null;
}

/**
 * SQL condition: the row belongs to a workspace that lives in this database. A workspace that is still arriving, or has
 * moved away, lives in another one.
 */
export function livesHere(workspaceId: Column): SQL {
  return sql`${workspaceId} NOT IN (SELECT ${workspaces.id} FROM ${workspaces} WHERE ${workspaces.database} IS NOT NULL)`;
}

/** SQL expression: the maximum number of subscriptions of a workspace. */
export const WEBHOOKS_MAX = sql<number>`coalesce(${workspaces.webhooksMax}, ${SUBSCRIPTIONS_MAX})`;

/**
 * Reads the fields of a workspace that a session of the portal needs, and whether a subscription belongs to it; null if
 * there is no such workspace.
 */
export async function findPortalAccess(
  db: Database,
  workspaceId: string,
  webhookId: string | null,
) {
  const { id, workspaceId: itsWorkspace, deletedAt } = subscriptions;
  const [row = null] = await db
    .select({
      name: workspaces.name,
      accessGranted: workspaces.accessGranted,
      sessionsNotBefore: workspaces.sessionsNotBefore,
      webhooksMax: WEBHOOKS_MAX,
      webhookFound: sql`${id} IS NOT NULL`.mapWith(Boolean),
    })
    .from(workspaces)
    .leftJoin(
      subscriptions,
      and(eq(id, webhookId ?? ""), eq(itsWorkspace, workspaces.id), isNull(deletedAt)),
    )
    .where(eq(workspaces.id, workspaceId));
  return row;
}

/** The shape in which operations show a workspace. Fields from its own database are null if that does not respond. */
export const WorkspaceView = z.object({
  workspaceId: z.string(),
  name: z.string().nullable(),
  accessGranted: z.boolean().nullable(),
  webhooksMax: z.int().nullable().describe("maximum number of webhooks"),
  createdAt: z.string(),
  database: z.string().describe("binding of its database"),
});

const WORKSPACE_COLUMNS = {
  id: workspaces.id,
  name: workspaces.name,
  accessGranted: workspaces.accessGranted,
  webhooksMax: WEBHOOKS_MAX.as("webhooks_max"),
  createdAt: workspaces.createdAt,
  database: workspaces.database,
};

const WORKSPACE_ORDER = { at: workspaces.createdAt, id: workspaces.id };
const readPage = preparePage({
  order: WORKSPACE_ORDER,
  select: qb.select(WORKSPACE_COLUMNS).from(workspaces).where(isOnPage(WORKSPACE_ORDER)),
});

/** Reads one page of all workspaces, newest first. */
export async function listEntries(
  env: Env,
  request: PageRequest,
): Promise<Page<z.infer<typeof WorkspaceView>>> {
  const page = await readPage(openDirectory(env), {}, request);
  const elsewhere = Map.groupBy(page.items, ({ database }) => database ?? DIRECTORY);
  elsewhere.delete(DIRECTORY);
  const found = await Promise.all(
    [...elsewhere].map(([database, listed]) =>
      queryIfReachable(env, database, async (db) => {
        const ids = listed.map(({ id }) => id);
        return db.select(WORKSPACE_COLUMNS).from(workspaces).where(inJson(workspaces.id, ids));
      }),
    ),
  );
  const known = new Map(found.flatMap((rows) => rows ?? []).map((row) => [row.id, row]));
  return mapItems(page, (entry) => {
    const row = entry.database === null ? entry : known.get(entry.id);
    return {
      workspaceId: entry.id,
      name: row?.name ?? null,
      accessGranted: row?.accessGranted ?? null,
      webhooksMax: row?.webhooksMax ?? null,
      createdAt: isoTime(entry.createdAt),
      database: entry.database ?? DIRECTORY,
    };
  });
}

/** Selects the workspaces among these that exist and are not being erased, with their encrypted data keys. */
export function selectWorkspaces(ids: string[]) {
  return qb
    .select({ id: workspaces.id, sealedDataKey: workspaces.sealedDataKey })
    .from(workspaces)
    .where(and(inJson(workspaces.id, ids), eq(workspaces.erasing, false)));
}

/** The fields of a workspace to change; those that are null or absent stay as they are. */
interface WorkspaceChanges {
  name?: string | null | undefined;
  adminEmails?: Administrator[] | null | undefined;
  webhooksMax?: number | null | undefined;
}

/** Changes fields of a workspace. Reads 0 if there is no such workspace. */
export function updateDetails(
  id: string,
  { name, adminEmails, webhooksMax }: WorkspaceChanges,
): Statements<number> {
  return counted(
    qb
      .update(workspaces)
      .set({
        name: name ?? sql`${workspaces.name}`,
        adminEmails: adminEmails ?? sql`${workspaces.adminEmails}`,
        webhooksMax: webhooksMax ?? sql`${workspaces.webhooksMax}`,
      })
      .where(eq(workspaces.id, id)),
  );
}

/** The maximum difference between the clocks of the machines that create a portal link and end the sessions. */
const CLOCK_SKEW_MS = 10_000;

/**
 * Counts a test event of a workspace. Flow control does not apply to test events, so their number is limited.
 * Otherwise, a workspace could flood a server that it does not own. Reads like `takeFrom`.
 */
export function takeTestEvent(id: string, now: number): Statements<number | null> {
  return takeFrom(TEST_EVENTS, id, 1, now);
}

const TEST_EVENTS: Allowance = {
  used: "testEvents",
  since: "testEventsSince",
  max: TEST_EVENTS_PER_MINUTE,
  windowMs: MINUTE_MS,
};

/**
 * Counts events of a workspace that are sent again. Their number is limited, because each one writes several rows.
 * Otherwise, a caller could disable and enable a subscription, and send the same events again and again. Reads like
 * `takeFrom`.
 */
export function takeRedeliveries(
  id: string,
  count: number,
  now: number,
): Statements<number | null> {
  return takeFrom(REDELIVERIES, id, count, now);
}

const REDELIVERIES: Allowance = {
  used: "redelivered",
  since: "redeliveredSince",
  max: REDELIVERIES_PER_HOUR,
  windowMs: HOUR_MS,
};

/** The maximum that a workspace may use up in a time window. The window begins with the first use. */
interface Allowance {
  /** The column of the number that was used up. */
  used: "testEvents" | "redelivered";
  /** The column of the time when the window began. */
  since: "testEventsSince" | "redeliveredSince";
  max: number;
  windowMs: number;
}

/**
 * Uses up some of an allowance, unless its maximum was reached before. A negative number gives back what was used up.
 *
 * Reads null if there was room, or else the number of seconds until there is; nothing is used up then.
 */
function takeFrom(
  { used, since, max, windowMs }: Allowance,
  id: string,
  count: number,
  now: number,
): Statements<number | null> {
  const [number, begunAt] = [workspaces[used], workspaces[since]];
  const isSameWindow = sql`${begunAt} > ${now - windowMs}`;
  const isBelow = sql`NOT (${isSameWindow} AND ${number} >= ${max})`;
  const statements = combine({
    taken: counted(
      qb
        .update(workspaces)
        .set({
          [used]: sql`max(0, iif(${isSameWindow}, ${number}, 0) + ${count})`,
          [since]: sql`iif(${isSameWindow}, ${begunAt}, ${now})`,
        })
        .where(and(eq(workspaces.id, id), count < 0 ? undefined : isBelow)),
    ),
    found: qb.select({ begunAt }).from(workspaces).where(eq(workspaces.id, id)),
  });
  return readAs(statements, ({ taken, found: [workspace] }) =>
    taken > 0
      ? null
      : Math.max(1, Math.ceil(((workspace?.begunAt ?? now) + windowMs - now) / 1000)),
  );
}

/**
 * Ends all portal sessions and links of a workspace. The margin covers times of issue from a clock that is fast. New
 * links are valid nevertheless, because `createPortalLink` gives them a later time. Reads 0 if there is no such
 * workspace.
 */
export function endSessions(id: string, now: number): Statements<number> {
  const sessionsNotBefore = sql`max(${now + CLOCK_SKEW_MS}, ${workspaces.sessionsNotBefore} + 1)`;
  return counted(qb.update(workspaces).set({ sessionsNotBefore }).where(eq(workspaces.id, id)));
}

/**
 * Grants or denies a workspace access. Reads 0 if there is no such workspace.
 *
 * @throws InputError if access would be granted to a workspace that is being erased.
 */
export function updateAccess(id: string, granted: boolean): Statements<number> {
  const isOwn = eq(workspaces.id, id);
  const statements = combine({
    updated: counted(
      qb
        .update(workspaces)
        .set({ accessGranted: granted })
        .where(and(isOwn, granted ? eq(workspaces.erasing, false) : undefined)),
    ),
    found: qb.select({ erasing: workspaces.erasing }).from(workspaces).where(isOwn),
  });
  return readAs(statements, ({ updated, found: [workspace] }) => {
    if (granted && workspace?.erasing) throw beingErased();
    return updated;
  });
}
