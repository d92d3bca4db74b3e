import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { combine, commit, connect } from "../../../src/db/client.ts";
import { chunk } from "../../../src/primitives/chunk.ts";
import { endSessions } from "../../../src/workspaces/workspaces.ts";
import { guardWrites, refuseWrites } from "../../../src/workspaces/write-guard.ts";
import { createWorkspace } from "../../support/deliveries.ts";
import { db, WORKSPACE_DB } from "../../support/placement.ts";

test("A key writes nothing in the hour after its revocation, however many others are revoked", async () => {
  const workspaceId = await createWorkspace();
  const revoke = (n: number, at: number) => commit(db, refuseWrites(workspaceId, `key_${n}`, at));
  const now = Date.now();
  await revoke(0, now);
  const others = Array.from({ length: 300 }, (_, i) => `key_${i + 1}`);
  for (const keyIds of chunk(others, 50))
    await commit(db, combine(keyIds.map((id) => refuseWrites(workspaceId, id, now + 3_599_999))));
  const write = (keyId: string) => {
    const guard = guardWrites(workspaceId, { keyId });
    return commit(connect(WORKSPACE_DB, guard), endSessions(workspaceId, -1));
  };
  for (const keyId of ["key_0", "key_300"])
    await expect(write(keyId)).rejects.toMatchObject({ code: "invalid_api_key" });
  expect(await write("key_other")).toBe(1);
  const { revoked } = await db.get<{ revoked: string }>(
    sql`SELECT revoked_keys AS revoked FROM workspaces WHERE id = ${workspaceId}`,
  );
  expect(Object.keys(JSON.parse(revoked))).toHaveLength(301);
  // No request takes this long, so its key takes no more room.
  await revoke(301, now + 3_600_000);
  const row = await db.get<{ revoked: string }>(
    sql`SELECT revoked_keys AS revoked FROM workspaces WHERE id = ${workspaceId}`,
  );
  expect(Object.keys(JSON.parse(row.revoked))).not.toContain("key_0");
});

test("A session writes nothing from the millisecond on in which sessions were ended", async () => {
  const workspaceId = await createWorkspace();
  await commit(db, endSessions(workspaceId, 0));
  const row = await db.get<{ endedAt: number }>(
    sql`SELECT sessions_not_before AS endedAt FROM workspaces WHERE id = ${workspaceId}`,
  );
  const write = (issuedAt: number) => {
    const guard = guardWrites(workspaceId, { issuedAt });
    return commit(connect(WORKSPACE_DB, guard), endSessions(workspaceId, -1));
  };
  await expect(write(row.endedAt)).rejects.toMatchObject({ code: "invalid_api_key" });
  expect(await write(row.endedAt + 1)).toBe(1);
});
