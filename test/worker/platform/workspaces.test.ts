import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { invoke } from "../../../src/platform/invoke.ts";
import { OPERATIONS, type PlatformMethod } from "../../../src/platform/operations.ts";
import { hashApiKey } from "../../../src/rate-limit/key-text.ts";
import { EMPTY_LEDGER, openApi, openWorkspace, Platform, platformOf } from "../../support/api.ts";
import { interposed } from "../../support/interposed.ts";
import { DATABASE, inDatabase, useThreeDatabases, WORKSPACE_DB } from "../../support/placement.ts";
import { insertWorkspaces } from "../../support/rows.ts";

useThreeDatabases();

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
  const input = { name: "Agence", adminEmails: ["admin@example.com"], database: DATABASE };
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

/** A step of a call, which takes until it is known whether the call waits for it. */
function holdStep() {
  const [reached, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  return {
    reach: () => {
      reached.resolve();
      return released.promise;
    },
    /** Expects that the call returns after the step, and waits until it does. */
    expectAwaitedBy: async (call: Promise<unknown>) => {
      let hasReturned = false;
      const returned = call.then(() => {
        hasReturned = true;
      });
      await reached.promise;
      // Long enough for everything else that the call waits for.
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(hasReturned).toBe(false);
      released.resolve();
      await returned;
    },
  };
}

test.each<[PlatformMethod, object, status: number]>([
  ["setWorkspaceAccess", { granted: false }, 403],
  ["revokeApiKey", {}, 401],
  ["rollApiKey", { overlapSeconds: 0 }, 401],
  ["updateApiKey", { requestsPerWindow: 1 }, 429],
])(
  "%s returns once the gates know, so that no later request has the old status",
  async (method, input, status) => {
    const { workspaceId, keyId, apiKey } = await openWorkspace();
    const api = openApi(apiKey);
    const revoked = await Platform.createApiKey({ workspaceId });
    for (const one of [api, openApi(revoked.apiKey)])
      expect((await one.get("/v1/leads")).status).toBe(200);
    await Platform.revokeApiKey({ keyId: revoked.keyId });
    const forgotten: string[] = [];
    const step = holdStep();
    /** The gates, of which the one that is told drops its status late. */
    const slow = {
      getByName: (name: string) => ({
        forget: async () => {
          forgotten.push(name);
          await step.reach();
          return env.KEY_GATE.getByName(name).forget();
        },
      }),
    } as unknown as Env["KEY_GATE"];
    const call = invoke(
      method,
      OPERATIONS[method],
      { env: { ...env, KEY_GATE: slow }, ctx: createExecutionContext() },
      { ...(method === "setWorkspaceAccess" ? { workspaceId } : { keyId }), ...input },
      "rpc",
    );
    await step.expectAwaitedBy(call);
    // The gate of a key that was revoked before is left alone.
    expect(forgotten).toEqual([await hashApiKey(apiKey)]);
    expect((await api.get("/v1/leads")).status).toBe(status);
  },
);

test("setWorkspaceAccess ends the access of a key whose first use came before its commit", async () => {
  const { workspaceId, api } = await openWorkspace();
  const statuses: number[] = [];
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    if (texts.some((text) => /^update "workspaces" set "access_granted"/.test(text)))
      statuses.push((await api.get("/v1/leads")).status);
    return go();
  });
  const platform = platformOf({ ...env, ...inDatabase({ DB }) });
  await platform.setWorkspaceAccess({ workspaceId, granted: false });
  statuses.push((await api.get("/v1/leads")).status);
  expect(statuses).toEqual([200, 403]);
});

test.each<[PlatformMethod, object]>([
  ["revokeApiKey", {}],
  ["rollApiKey", { overlapSeconds: 0 }],
])(
  "%s returns once the workspace's database refuses writes with the key",
  async (method, input) => {
    const { keyId } = await openWorkspace();
    const step = holdStep();
    /** The database, which notes late that the key is revoked. */
    const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
      if (texts.some((text) => /^update .*"revoked_keys" = /s.test(text))) await step.reach();
      return go();
    });
    const bindings = { ...env, ...inDatabase({ DB }) };
    const context = { env: bindings, ctx: createExecutionContext() };
    const call = invoke(method, OPERATIONS[method], context, { keyId, ...input }, "rpc");
    await step.expectAwaitedBy(call);
  },
);
