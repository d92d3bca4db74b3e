import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import {
  deployedWith,
  openApi,
  openWorkspace,
  Platform,
  recordAutomation,
} from "../../support/api.ts";
import { HOUR_MS, jumpTo, setDeliveries } from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { useThreeDatabases, WORKSPACE_DB } from "../../support/placement.ts";
import { openOwed, portalOf, sessionToken } from "../../support/portal.ts";

useThreeDatabases();

/*
 * Access may end while a request is admitted but has not written yet. Nothing is written then, whatever the request
 * is, and the response is that of a request that comes after the end.
 */

const creation = { url: "https://ok-ended.example/", events: ["lead.created"] };

/** What requests can change of a workspace, as stored. */
async function storedOf(workspaceId: string): Promise<string> {
  const tables = ["subscriptions", "automations", "events", "deliveries", "replays"];
  const found = await WORKSPACE_DB.batch(
    tables.map((table) =>
      WORKSPACE_DB.prepare(`SELECT * FROM ${table} WHERE workspace_id = ?`).bind(workspaceId),
    ),
  );
  return JSON.stringify(found.map(({ results }) => results));
}

/** The Worker with a database in which `act` happens just before the first write, and what is stored after it. */
function heldBack(workspaceId: string, act: () => Promise<unknown>) {
  const held = { stored: "" };
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const isWrite = texts.some((text) => /^\s*(insert|update|delete)/i.test(text));
    if (isWrite && held.stored === "") {
      await act();
      held.stored = await storedOf(workspaceId);
    }
    return go();
  });
  return { held, fetch: deployedWith({ DB }) };
}

type Workspace = Awaited<ReturnType<typeof openOwed>>;
type Ending = [name: string, status: number, end: (workspace: Workspace) => Promise<unknown>];

const losesAccess: Ending = [
  "the workspace loses access",
  403,
  ({ workspaceId }) => Platform.setWorkspaceAccess({ workspaceId, granted: false }),
];
const isErased: Ending = [
  "the workspace is erased",
  401,
  ({ workspaceId }) => Platform.eraseWorkspace({ workspaceId }),
];

const KEY_ENDINGS: Ending[] = [
  ["its key is revoked", 401, ({ keyId }) => Platform.revokeApiKey({ keyId })],
  [
    "its key is revoked, and others after it",
    401,
    async ({ keyId, workspaceId }) => {
      await Platform.revokeApiKey({ keyId });
      for (let i = 0; i < 3; i++) {
        const { keyId: other } = await Platform.createApiKey({ workspaceId });
        await Platform.revokeApiKey({ keyId: other });
      }
    },
  ],
  [
    "its key is rotated without an overlap",
    401,
    ({ keyId }) => Platform.rollApiKey({ keyId, overlapSeconds: 0 }),
  ],
  [
    "its key is revoked, and the workspace loses access",
    401,
    async ({ keyId, workspaceId }) => {
      await Platform.revokeApiKey({ keyId });
      await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    },
  ],
  losesAccess,
  isErased,
];

const SESSION_ENDINGS: Ending[] = [
  ["the sessions end", 401, ({ workspaceId }) => Platform.endPortalSessions({ workspaceId })],
  [
    "the workspace loses access and gets it back",
    401,
    async ({ workspaceId }) => {
      await Platform.setWorkspaceAccess({ workspaceId, granted: false });
      await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    },
  ],
  losesAccess,
  isErased,
];

type Write = (
  api: ReturnType<typeof openApi>,
  workspace: Workspace,
) => Promise<{ status: number; body: unknown }>;

const KEY_WRITES: [name: string, write: Write][] = [
  ["POST /v1/webhooks", (api) => api.post("/v1/webhooks", creation)],
  [
    "POST /v1/webhooks, which looks up its Idempotency-Key before,",
    (api) => api.post("/v1/webhooks", creation, { "Idempotency-Key": "new" }),
  ],
  ["DELETE /v1/webhooks/{id}", (api, { webhookId }) => api.delete(`/v1/webhooks/${webhookId}`)],
  [
    "PATCH /v1/automations/{id}",
    async (api, { workspaceId }) =>
      api.patch(`/v1/automations/${await recordAutomation(workspaceId)}`, { status: "paused" }),
  ],
];

type PortalWrite = (
  portal: ReturnType<typeof portalOf>,
  workspace: Workspace,
) => Promise<{ status: number; body: unknown }>;

const PORTAL_WRITES: [name: string, write: PortalWrite][] = [
  ["creates", (portal) => portal.post("/webhooks", creation)],
  ["deletes", (portal, { path }) => portal.delete(path)],
  ["changes", (portal, { path }) => portal.post(`${path}/update`, { description: "x" })],
  ["disables", (portal, { path }) => portal.post(`${path}/disable`, {})],
  ["enables", (portal, { path }) => portal.post(`${path}/enable`, {})],
  ["rotates the secret of", (portal, { path }) => portal.post(`${path}/secret`, {})],
  ["ends the overlap of", (portal, { path }) => portal.post(`${path}/overlap`, {})],
  ["tests", (portal, { path }) => portal.post(`${path}/test`, { type: "lead.created" })],
  [
    "replays to",
    async (portal, { path, webhookId }) => {
      await setDeliveries(webhookId, { state: "exhausted" });
      const since = new Date(Date.now() - 2 * HOUR_MS).toISOString();
      return portal.post(`${path}/redeliver`, { since });
    },
  ],
];

/**
 * Each ending with the first write, and each write with the first ending. One guard checks all endings, and each write
 * has it, so no other pair of them can fail alone.
 */
function casesOf<W>(endings: Ending[], writes: [name: string, write: W][]) {
  return endings.flatMap(([ended, status, end], i) =>
    writes
      .filter((_, j) => i === 0 || j === 0)
      .map(([name, write]) => [ended, name, { status, end, write }] as const),
  );
}

test.each(casesOf(KEY_ENDINGS, KEY_WRITES))(
  "If %s in the meantime, %s writes nothing",
  async (_ended, _name, { status, end, write }) => {
    const workspace = await openOwed();
    const { workspaceId, apiKey, api } = workspace;
    await api.get("/v1/leads");
    const { held, fetch } = heldBack(workspaceId, () => end(workspace));
    const response = await write(openApi(apiKey, fetch), workspace);
    expect(response).toMatchObject({ status, body: { error: { details: {} } } });
    expect(held.stored).not.toBe("");
    expect(await storedOf(workspaceId)).toBe(held.stored);
  },
);

test.each(casesOf(SESSION_ENDINGS, PORTAL_WRITES))(
  "If %s in the meantime, a session %s no subscription, and notes no change",
  async (_ended, _name, { status, end, write }) => {
    const workspace = await openOwed();
    const { workspaceId } = workspace;
    const { held, fetch } = heldBack(workspaceId, () => end(workspace));
    const portal = portalOf(await sessionToken(workspaceId), fetch);
    const response = await write(portal, workspace);
    expect(response).toMatchObject({ status, body: { error: { details: {} } } });
    expect(held.stored).not.toBe("");
    expect(await storedOf(workspaceId)).toBe(held.stored);
    const noted = env.DB.prepare(
      "SELECT method FROM audit_trail WHERE workspace_id = ? AND via = 'portal' AND method <> 'openPortalSession'",
    );
    expect((await noted.bind(workspaceId).all()).results).toEqual([]);
  },
);

test.each(KEY_WRITES.filter(([name]) => !name.startsWith("DELETE")))(
  "If its key is revoked after %s has written, and the reply was lost, it does not get 401",
  async (_, write) => {
    const workspace = await openOwed();
    const { workspaceId, apiKey, keyId, api } = workspace;
    await api.get("/v1/leads");
    const before = await storedOf(workspaceId);
    let hasEnded = false;
    const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
      const result = await go();
      const isWrite = texts.some((text) =>
        /^insert into "(subscriptions|automations)"/i.test(text),
      );
      if (hasEnded || !isWrite) return result;
      hasEnded = true;
      await Platform.revokeApiKey({ keyId });
      throw new Error("D1_ERROR: Network connection lost.");
    });
    const response = await write(openApi(apiKey, deployedWith({ DB })), workspace);
    expect([hasEnded, response.status]).toEqual([true, 500]);
    expect(await storedOf(workspaceId)).not.toBe(before);
  },
);

test("A write goes on while other keys, sessions and workspaces end", async () => {
  const [workspace, other] = [await openOwed(), await openWorkspace()];
  const { workspaceId, apiKey } = workspace;
  const { keyId } = await Platform.createApiKey({ workspaceId });
  const { fetch } = heldBack(workspaceId, async () => {
    await Platform.revokeApiKey({ keyId });
    await Platform.endPortalSessions({ workspaceId });
    await Platform.setWorkspaceAccess({ workspaceId: other.workspaceId, granted: false });
  });
  const response = await openApi(apiKey, fetch).post("/v1/webhooks", creation);
  expect(response.status).toBe(201);
});

test("If its key is revoked in the meantime, a repeated POST shows no secret", async () => {
  const { apiKey, keyId, api } = await openWorkspace();
  const headers = { "Idempotency-Key": "repeated" };
  expect((await api.post("/v1/webhooks", creation, headers)).status).toBe(201);
  let hasEnded = false;
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const isLookUp = texts.some((text) => /^select .*"idempotency_key" = /.test(text));
    if (isLookUp && !hasEnded) {
      hasEnded = true;
      await Platform.revokeApiKey({ keyId });
    }
    return go();
  });
  const ended = openApi(apiKey, deployedWith({ DB }));
  const repeated = await ended.post("/v1/webhooks", creation, headers);
  expect([hasEnded, repeated.status]).toEqual([true, 401]);
});

test("revokeApiKey returns a subscription that a request has just written with the key", async () => {
  const { apiKey, keyId } = await openWorkspace();
  const revoked: string[][] = [];
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const result = await go();
    if (texts.some((text) => text.startsWith('insert into "subscriptions"')))
      revoked.push((await Platform.revokeApiKey({ keyId })).webhookIds);
    return result;
  });
  const api = openApi(apiKey, deployedWith({ DB }));
  const { status, body } = await api.post<{ id: string }>("/v1/webhooks", creation);
  expect(status).toBe(201);
  expect(revoked).toEqual([[body.id]]);
});

test.each([KEY_ENDINGS[0], losesAccess] as Ending[])(
  "An isolate reads nothing for a key once it knows that %s",
  async (_, status, end) => {
    const workspace = await openOwed();
    let reads = 0;
    const DB = interposed(WORKSPACE_DB, ({ texts, go }) => {
      if (texts.some((text) => text.includes('from "leads"'))) reads++;
      return go();
    });
    const api = openApi(workspace.apiKey, deployedWith({ DB }));
    expect((await api.get("/v1/leads")).status).toBe(200);
    await end(workspace);
    expect((await api.get("/v1/leads")).status).toBe(status);
    reads = 0;
    // An isolate repeats a refusal for two seconds.
    jumpTo(Date.now() + 2_100);
    expect((await api.get("/v1/leads")).status).toBe(status);
    expect(reads).toBe(0);
  },
);
