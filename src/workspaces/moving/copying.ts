import { type Column, eq, getTableColumns, type SQL, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { bare, excluded, fromJson, list, qb, toJsonValue } from "../../db/builder.ts";
import {
  type Executable,
  inOrder,
  jsonParameters,
  readAs,
  rows,
  type Statements,
  write,
} from "../../db/client.ts";
import {
  automations,
  changes,
  deliveries,
  events,
  leads,
  notices,
  removals,
  runs,
  subscriptions,
} from "../../db/schema.ts";
import { BLANK_EVENT, BLANK_LEAD } from "../../records/erasure.ts";
import type { ExportKind } from "../export-item.ts";
import {
  namesOf,
  PARTS,
  type Part,
  type Position,
  positionOf,
  selectRows,
} from "../lifecycle/export-parts.ts";

/** Maximum rows of a workspace that are copied to another database in one step, and maximum bytes. */
const COPIED_AT_ONCE = 1_000;
export const COPIED_BYTES_AT_ONCE = 1_000_000;
/** Maximum changes, noted since copying began, that are copied in one step; the same bytes apply. */
const CHANGES_AT_ONCE = 1_000;

/*
 * Copying the rows of a workspace from one database, the source, to another, the target: read as they
 * are, passed on as JSON, and written unchanged.
 */

/** Child rows, which are copied along with their parents. */
interface Followers {
  table: SQLiteTable;
  /** SQL condition: they belong to the parent row. */
  where: SQL | undefined;
}

interface Kind {
  /** The name that triggers use in `changes`, and that exports use. */
  name: ExportKind;
  table: SQLiteTable & { workspaceId: Column };
  /** What identifies a row within its workspace. */
  key: Column[];
  /** SQL expression: the approximate size of a row in bytes, without reading all of it. */
  weight: SQL;
  /** What identifies a row that the target already has. */
  conflict: Column[];
  /** Left out if they are those that an export nests. */
  followers?: Followers;
  /** Columns of the child rows that are written with another value than was read. */
  replaced?: Record<string, SQL>;
  /** SQL condition: the target has the rows that a row refers to. */
  refersToCopied?: SQL;
  /** Statements before rows are deleted: they drop references to them, and overwrite personal data. */
  release?: (isGone: SQL) => Executable[];
}

/** The kinds of rows, ordered so that none refers to a later one. */
const KINDS: Kind[] = [
  {
    name: "automation",
    table: automations,
    key: [automations.id],
    weight: sql`octet_length(${automations.name})`,
    conflict: [automations.id],
    followers: { table: removals, where: eq(removals.automationId, automations.id) },
  },
  {
    name: "lead",
    table: leads,
    key: [leads.id],
    weight: sql`2 * octet_length(${leads.sealed})`,
    conflict: [leads.id],
    // Its runs may only lose the link in a later change.
    release: (isGone) => [
      qb
        .update(runs)
        .set({ leadId: null })
        .where(sql`${runs.leadId} IN (SELECT ${leads.id} FROM ${leads} WHERE ${isGone})`),
      qb.update(leads).set(BLANK_LEAD).where(isGone),
    ],
  },
  {
    name: "run",
    table: runs,
    refersToCopied: sql`EXISTS (SELECT 1 FROM ${automations} WHERE ${automations.id} = r.value->>'automationId')
      AND (r.value->>'leadId' IS NULL
        OR EXISTS (SELECT 1 FROM ${leads} WHERE ${leads.id} = r.value->>'leadId'))`,
    key: [runs.id],
    weight: sql`octet_length(${runs.actions})`,
    conflict: [runs.id],
  },
  {
    name: "webhook",
    table: subscriptions,
    key: [subscriptions.id],
    weight: sql`octet_length(${subscriptions.url})`,
    conflict: [subscriptions.id],
  },
  {
    name: "event",
    table: events,
    key: [events.id],
    weight: sql`octet_length(${events.body})`,
    conflict: [events.workspaceId, events.id],
    release: (isGone) => [qb.update(events).set(BLANK_EVENT).where(isGone)],
  },
  {
    name: "delivery",
    table: deliveries,
    key: [deliveries.subscriptionId, deliveries.eventId],
    weight: sql`100`,
    conflict: [deliveries.subscriptionId, deliveries.eventId],
  },
  {
    name: "notice",
    table: notices,
    key: [notices.id],
    weight: sql`octet_length(${notices.events})`,
    // Its id is different in the target.
    conflict: [notices.subscriptionId, notices.failingSince, notices.kind],
    replaced: {
      noticeId: sql`(SELECT ${notices.id} FROM ${notices}
        WHERE ${notices.subscriptionId} = r.value->>'subscriptionId'
          AND ${notices.failingSince} = r.value->>'failingSince'
          AND ${notices.kind} = r.value->>'kind')`,
    },
  },
];

/** Columns that the target fills by itself. */
const GENERATED: Column[] = [notices.id];

/** A row by field name, as stored, with its child rows. */
type CopiedRow = Record<string, unknown> & { followers?: Record<string, unknown>[] };

/** Rows of one kind, in the order in which they are copied. */
export interface Piece {
  rows: CopiedRow[];
  /**
   * Where the next piece begins; null after the last one of the kind. Rows that are inserted later are
   * among the changes.
   */
  next: Position | null;
}

/** How many kinds of rows there are to copy. */
export const KINDS_COPIED = KINDS.length;

const partOf = ({ name }: Kind) => PARTS.find(({ kind }) => kind === name) as Part;

const followersOf = (kind: Kind): Followers | undefined => kind.followers ?? partOf(kind).nested;

const columnsOf = (table: SQLiteTable) => Object.entries<Column>(getTableColumns(table));

/** The columns to select for whole rows, with their child rows. */
function wholeRow(kind: Kind): SQL[] {
  const followers = followersOf(kind);
  const own = columnsOf(kind.table).map(
    ([name, column]) => sql`${toJsonValue(column)} AS ${sql.identifier(name)}`,
  );
  if (!followers) return own;
  const fields = columnsOf(followers.table).flatMap(([name, column]) => [sql`${name}`, column]);
  return [
    ...own,
    sql`(SELECT json_group_array(json_object(${list(fields)}))
      FROM ${followers.table} WHERE ${followers.where}) AS followers`,
  ];
}

function toCopied({ followers, ...row }: Record<string, unknown>): CopiedRow {
  return followers === undefined ? row : { ...row, followers: JSON.parse(followers as string) };
}

/** Reads the next piece: as many rows of a kind as fit. */
export function findPiece(
  workspaceId: string,
  kind: number,
  after: Position | null,
): Statements<Piece> {
  const one = KINDS[kind] as Kind;
  const part = partOf(one);
  const selected = [...wholeRow(one), sql`${one.weight} AS weight`];
  const next = selectRows(part, workspaceId, selected, after, COPIED_AT_ONCE);
  const order = list(namesOf(part.position));
  // Always the first row, and others while there is room.
  const piece = sql`SELECT * FROM (
      SELECT *, sum(weight) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) - weight AS before
      FROM (${next}))
    WHERE before < ${COPIED_BYTES_AT_ONCE}`;
  return readAs(rows<Record<string, unknown> & Weighed>(piece), (found) => {
    const last = found.at(-1);
    const isFull =
      found.length === COPIED_AT_ONCE ||
      (last && last.before + last.weight >= COPIED_BYTES_AT_ONCE);
    return {
      next: last && isFull ? positionOf(part, last) : null,
      rows: found.map(({ before, weight, ...row }) => {
        for (const i of part.position.keys()) delete row[`p${i}`];
        return toCopied(row);
      }),
    };
  });
}

/** The size of a row, and of all rows before it. */
interface Weighed {
  weight: number;
  before: number;
}

/** Rows written since copying began, in their current state. */
export interface ChangedRows {
  /** The rows that exist, by kind. */
  rows: CopiedRow[][];
  /** The keys of the rows that no longer exist, by kind. */
  gone: string[][][];
  /** The number of the last change included; null if there are none. */
  through: number | null;
  /** Whether these were all changes. */
  isAll: boolean;
}

/** Reads the oldest changes since copying began, in one consistent state of the database. */
export function findChanges(workspaceId: string): Statements<ChangedRows> {
  const isOf = sql`${changes.workspaceId} = ${workspaceId}`;
  const weights = KINDS.map(({ name, table, key, conflict, weight }) => {
    const of = list([changes.id, changes.eventId].slice(0, key.length));
    return sql`WHEN ${name} THEN (SELECT ${weight} FROM ${table}
      WHERE ${isWithin({ table, conflict }, workspaceId)} AND (${list(key)}) = (${of}))`;
  });
  const weighed = sql`SELECT ${changes.number} AS number,
      coalesce(CASE ${changes.kind} ${sql.join(weights, sql` `)} END, 0) AS weight
    FROM ${changes} WHERE ${isOf} ORDER BY ${changes.number} LIMIT ${CHANGES_AT_ONCE}`;
  // Always the first row, and others while there is room.
  const first = sql`SELECT number FROM (
      SELECT number, sum(weight) OVER (ORDER BY number ROWS UNBOUNDED PRECEDING) - weight AS before
      FROM (${weighed}))
    WHERE before < ${COPIED_BYTES_AT_ONCE}`;
  const noted = sql`FROM ${changes} WHERE ${changes.workspaceId} = ${workspaceId}
    AND ${changes.number} IN (${first})`;
  const statements = inOrder([
    rows<{ kind: string; id: string; eventId: string; number: number }>(
      sql`SELECT ${changes.kind} AS kind, ${changes.id} AS id, ${changes.eventId} AS "eventId",
        max(${changes.number}) AS number ${noted} GROUP BY 1, 2, 3`,
    ),
    rows<{ isMore: 0 | 1 }>(
      sql`SELECT EXISTS (SELECT 1 FROM ${changes}
        WHERE ${isOf} AND ${changes.number} > (SELECT max(number) FROM (${first}))) AS "isMore"`,
    ),
    inOrder(
      KINDS.map((kind) => {
        const keys = sql`SELECT ${list([changes.id, changes.eventId].slice(0, kind.key.length))}
          ${noted} AND ${changes.kind} = ${kind.name}`;
        return rows<Record<string, unknown>>(
          sql`SELECT ${list(wholeRow(kind))} FROM ${kind.table}
            WHERE ${isWithin(kind, workspaceId)} AND (${list(kind.key)}) IN (${keys})`,
        );
      }),
    ),
  ]);
  return readAs(statements, ([keys, [more], found]) => {
    const there = found.map((kept) => kept.map(toCopied));
    const gone = KINDS.map((kind, i) => {
      const fields = kind.key.map((column) => fieldOf(kind, column));
      const kept = new Set(there[i]?.map((row) => fields.map((field) => row[field]).join()));
      return keys
        .filter((key) => key.kind === kind.name)
        .map(({ id, eventId }) => [id, eventId].slice(0, fields.length))
        .filter((key) => !kept.has(key.join()));
    });
    const through = keys.reduce((most, { number }) => Math.max(most, number), 0);
    const isAll = more?.isMore === 0;
    return { rows: there, gone, through: keys.length === 0 ? null : through, isAll };
  });
}

/** SQL condition: the row is in the workspace; only needed if the workspace is part of its key. */
function isWithin({ table, conflict }: Pick<Kind, "table" | "conflict">, workspaceId: string): SQL {
  return conflict.includes(table.workspaceId) ? eq(table.workspaceId, workspaceId) : sql`true`;
}

/** The field name of a column. */
function fieldOf({ table }: Kind, column: Column): string {
  return columnsOf(table).find(([, own]) => own === column)?.[0] ?? "";
}

/**
 * Upserts copied rows of a kind. A row that refers to a row that the target does not have yet is left out: both
 * are among the changes, which follow in order.
 */
export function upsertRows(kind: number, copied: CopiedRow[]): Statements<unknown> {
  const one = KINDS[kind] as Kind;
  const { table, conflict, refersToCopied = sql`true`, replaced } = one;
  const followers = followersOf(one);
  const own = columnsOf(table).filter(([, column]) => !GENERATED.includes(column));
  const kept = own.filter(([, column]) => !conflict.includes(column));
  return inOrder(
    jsonParameters(copied).map((chunk) => {
      const source = sql`FROM json_each(${chunk}) AS r`;
      const insert = sql`INSERT INTO ${table} (${list(own.map(([, column]) => bare(column)))})
        SELECT ${list(own.map(([name, column]) => fromJson("r")(column, name)))} ${source} WHERE ${refersToCopied}
        ON CONFLICT (${list(conflict.map(bare))}) DO UPDATE
        SET ${list(kept.map(([, column]) => sql`${bare(column)} = ${excluded(column)}`))}`;
      if (!followers) return write(insert);
      const columns = columnsOf(followers.table);
      const values = columns.map(([name]) => replaced?.[name] ?? sql.raw(`f.value->>'${name}'`));
      const names = list(columns.map(([, column]) => bare(column)));
      return inOrder([
        insert,
        sql`INSERT INTO ${followers.table} (${names}) SELECT ${list(values)}
          ${source}, json_each(r.value, '$.followers') AS f WHERE true ON CONFLICT DO NOTHING`,
      ]);
    }),
  );
}

/** Applies changes: upserts the rows that exist, and deletes those that no longer do. */
export function applyChanges(
  workspaceId: string,
  { rows: there, gone }: ChangedRows,
): Statements<unknown> {
  const kinds = [...KINDS.entries()];
  return inOrder([
    // Written again, because some may no longer exist.
    inOrder(kinds.map(([i, kind]) => deleteFollowers(kind, there[i] ?? []))),
    inOrder(kinds.map(([i]) => upsertRows(i, there[i] ?? []))),
    inOrder(
      kinds
        .reverse()
        .map(([i, kind]) => deleteRows(kind, isWithin(kind, workspaceId), gone[i] ?? [])),
    ),
  ]);
}

function deleteFollowers(kind: Kind, of: CopiedRow[]): Statements<unknown> {
  const { table, conflict } = kind;
  const followers = followersOf(kind);
  if (!followers || of.length === 0) return inOrder([]);
  const values = conflict.map((column) => sql.raw(`r.value->>'${fieldOf(kind, column)}'`));
  return inOrder(
    jsonParameters(of).map((chunk) =>
      write(
        sql`DELETE FROM ${followers.table} WHERE EXISTS (
          SELECT 1 FROM ${table} JOIN json_each(${chunk}) AS r ON (${list(conflict)}) = (${list(values)})
          WHERE ${followers.where})`,
      ),
    ),
  );
}

function deleteRows(kind: Kind, isWithin: SQL, keys: string[][]) {
  const { table, key, release } = kind;
  // Rows with generated keys are never deleted.
  if (keys.length === 0 || key.some((column) => GENERATED.includes(column))) return inOrder([]);
  const values = key.map((_, i) => sql.raw(`value->>${i}`));
  const isGone = sql`${isWithin} AND (${list(key)}) IN (SELECT ${list(values)} FROM json_each(${JSON.stringify(keys)}))`;
  const followers = followersOf(kind);
  return inOrder([
    followers
      ? write(
          sql`DELETE FROM ${followers.table} WHERE EXISTS (
            SELECT 1 FROM ${table} WHERE ${isGone} AND ${followers.where})`,
        )
      : inOrder([]),
    inOrder(release?.(isGone) ?? []),
    sql`DELETE FROM ${table} WHERE ${isGone}`,
  ]);
}
