import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { commit, connect } from "../../../src/db/client.ts";
import { deliveries, events, subscriptions } from "../../../src/db/schema.ts";
import {
  CHUNK_BYTES_MAX,
  insertRows,
  measureChunk,
  selectChunk,
} from "../../../src/moving/copying.ts";
import { countRows, type RowPosition } from "../../../src/workspaces/rows.ts";
import { ownedTable } from "../../../src/workspaces/table-registry.ts";
import { createWorkspace, subscribe, subscribeMany } from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { storeEvents } from "../../support/stored-events.ts";

const db = connect(WORKSPACE_DB);
const OWNED = ownedTable(deliveries);

/** So many deliveries of a new workspace, each with attempts whose responses have the maximum size. */
async function deliveriesWith(count: number, attempts: number): Promise<string> {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  await storeEvents(workspaceId, id, count, Date.now() - 1e6, "exhausted");
  await WORKSPACE_DB.prepare(
    `INSERT INTO attempts (subscription_id, event_id, attempt, at, outcome, status, duration_ms, response)
      WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2)
      SELECT d.subscription_id, d.event_id, n, 1, 'answered', 500, 5, randomblob(2200)
      FROM deliveries AS d, n WHERE d.subscription_id = ?1`,
  )
    .bind(id, attempts)
    .run();
  return workspaceId;
}

/** The chunks of a workspace's deliveries: rows, bytes as JSON, and statements that insert them. */
async function chunksOf(workspaceId: string) {
  const chunks: { rows: number; bytes: number; statements: number }[] = [];
  let after: RowPosition | null = null;
  do {
    const chunk: { rows: number; next: RowPosition | null } = await commit(
      db,
      measureChunk(workspaceId, OWNED, after),
    );
    const rows = await commit(db, selectChunk(workspaceId, OWNED, after, chunk.rows));
    const inserted = insertRows(OWNED, rows, sql`true`);
    chunks.push({
      rows: rows.length,
      bytes: JSON.stringify(rows).length,
      statements: inserted.queries.length,
    });
    after = chunk.next;
  } while (after);
  return chunks;
}

test("a chunk of rows with many children is bounded in bytes and in statements", async () => {
  const chunks = await chunksOf(await deliveriesWith(30, 100));
  expect(chunks.length).toBeGreaterThan(1);
  for (const { bytes, statements } of chunks) {
    expect(bytes).toBeLessThan(1.2 * CHUNK_BYTES_MAX);
    expect(statements).toBeLessThan(10);
  }
  expect(chunks.reduce((sum, { rows }) => sum + rows, 0)).toBe(30);
});

test("a chunk of small rows has 250 of them", async () => {
  const chunks = await chunksOf(await deliveriesWith(260, 0));
  expect(chunks.map(({ rows }) => rows)).toEqual([250, 10]);
});

test("a row that is larger than a chunk is a chunk by itself", async () => {
  const chunks = await chunksOf(await deliveriesWith(2, 1_000));
  expect(chunks.map(({ rows }) => rows)).toEqual([1, 1]);
});

test("rows that exactly fill a chunk are followed by an empty one", async () => {
  const chunks = await chunksOf(await deliveriesWith(250, 0));
  expect(chunks.map(({ rows }) => rows)).toEqual([250, 0]);
});

test("rows are counted without reading a row for each delivery", async () => {
  const workspaceId = await createWorkspace();
  const [first = "", ...others] = await subscribeMany(workspaceId, 20);
  const countedIn = async (DB: D1Database, ...counted: (typeof OWNED)[]) =>
    (await commit(connect(DB), { rows: countRows(counted, workspaceId) })).rows;
  // A workspace without events has other rows.
  expect(await countedIn(WORKSPACE_DB, ownedTable(subscriptions), OWNED)).toBe(20);
  await storeEvents(workspaceId, first, 1_000, 1.7e12, "delivered");
  const owed = JSON.stringify([first, ...others]);
  await WORKSPACE_DB.prepare("UPDATE events SET owed = ? WHERE workspace_id = ?")
    .bind(owed, workspaceId)
    .run();
  const { DB, rows } = meteredDatabase();
  expect(await countedIn(DB, ownedTable(events), OWNED)).toBe(21_000);
  expect(rows.read).toBeLessThan(2_100);
});
