import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { EMPTY_LEDGER, openWorkspace, Platform } from "../../support/api.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { insertWorkspaces } from "../../support/rows.ts";

test("the ledger of a workspace without deliveries counts nothing", async () => {
  const { workspaceId } = await openWorkspace();
  expect(await Platform.ledger({ workspaceId })).toEqual(EMPTY_LEDGER);
});

test("listWorkspaces finds by a part of the name, in any case, however many others are newer", async () => {
  const { workspaceId } = await Platform.createWorkspace({ name: "Maison ÉTOILE du Nord" });
  await insertWorkspaces(
    Array.from({ length: 2_100 }, (_, i) => ({
      id: `wks_named${i}`,
      name: `Agence ${i}`,
      createdAt: 9e12 + i,
    })),
    env.DB,
  );
  const first = await Platform.listWorkspaces({ name: "étoile DU" });
  expect(first).toEqual({ items: [], nextCursor: expect.any(String) });
  const second = await Platform.listWorkspaces({ name: "étoile DU", cursor: first.nextCursor });
  expect(second).toMatchObject({ items: [{ workspaceId }], nextCursor: null });
  expect((await Platform.listWorkspaces({ name: "agence" })).items).toHaveLength(100);
  const { items } = await Platform.listWorkspaces({ name: "Agence 2099" });
  expect(items.map((each) => each.workspaceId)).toEqual(["wks_named2099"]);
  await env.DB.prepare("DELETE FROM workspaces WHERE id LIKE 'wks_named%'").run();
});

test("updateWorkspace changes the given fields and no others", async () => {
  const input = { name: "Agence", adminEmails: ["admin@example.com"] };
  const { workspaceId } = await Platform.createWorkspace(input);
  const row = WORKSPACE_DB.prepare(
    "SELECT name, admin_emails AS admins, webhooks_max AS max FROM workspaces WHERE id = ?",
  ).bind(workspaceId);
  const name = "Agence Lumière";
  for (const [change, expected] of [
    [{ name }, { name, admins: '["admin@example.com"]', max: null }],
    [{ adminEmails: [] }, { name, admins: "[]", max: null }],
    [{}, { name, admins: "[]", max: null }],
    [{ webhooksMax: 100 }, { name, admins: "[]", max: 100 }],
    [{ name: "Agence" }, { name: "Agence", admins: "[]", max: 100 }],
  ] as const) {
    await Platform.updateWorkspace({ workspaceId, ...change } as { workspaceId: string });
    expect(await row.first()).toEqual(expected);
  }
  const { items } = await Platform.listWorkspaces({});
  expect(items).toContainEqual(expect.objectContaining({ workspaceId, webhooksMax: 100 }));
});
