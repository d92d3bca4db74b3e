import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { invoke } from "../../../src/platform/invoke.ts";
import {
  OPERATIONS,
  type PlatformInput,
  type PlatformMethod,
} from "../../../src/platform/operations.ts";
import {
  automationReport,
  deployedAs,
  errorOf,
  openApi,
  Platform,
  recordAutomation,
} from "../../support/api.ts";
import { expectedSignatures, receivedBy, statesOf } from "../../support/deliveries.ts";
import { type DatabaseCall, interposed } from "../../support/interposed.ts";
import { DATABASE, WORKSPACE_DB } from "../../support/placement.ts";
import { openOwed } from "../../support/portal.ts";

/*
 * Two calls that change the same thing at the same moment. Both have read it before either writes. What each caller is
 * told must be true: the second one gets an error or the same result, or its change follows the first.
 */

type Owed = Awaited<ReturnType<typeof openOwed>>;
/** A call with the databases of these bindings. Its result is what its caller learns; an error is its message. */
// biome-ignore lint/suspicious/noExplicitAny: each check knows its results
type Act = (owed: Owed, databases: Partial<Env>) => Promise<any>;

const call =
  <M extends PlatformMethod>(method: M, input: (owed: Owed) => PlatformInput<M>): Act =>
  (owed, databases) => {
    const context = { env: { ...env, ...databases }, ctx: createExecutionContext() };
    return invoke(method, OPERATIONS[method] as never, context, input(owed), "rpc").catch(
      (error) => error.message,
    );
  };

const request =
  (
    send: (
      api: ReturnType<typeof openApi>,
      owed: Owed,
    ) => Promise<{ status: number; body: unknown }>,
  ): Act =>
  async (owed, databases) => {
    const fetch = deployedAs({ ...env, ...databases });
    const { status, body } = await send(openApi(owed.apiKey, fetch), owed);
    return { status, ...(body as object) };
  };

/** Makes two calls, whose first writes wait for each other; then the first call ends before the second one writes. */
async function atOnce(owed: Owed, first: Act, second: Act) {
  const ready = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  const firstEnded = Promise.withResolvers<void>();
  const client = (turn: 0 | 1) => {
    let isWaiting = true;
    const wait = async ({ texts, go }: DatabaseCall) => {
      const isWrite = texts.some((text) => /^\s*(insert|update|delete)/i.test(text));
      if (!isWrite || texts.some((text) => text.includes("audit_trail"))) return go();
      if (isWaiting) {
        isWaiting = false;
        ready[turn].resolve();
        await Promise.all(ready.map(({ promise }) => promise));
        if (turn === 1) await firstEnded.promise;
      }
      return go();
    };
    // The directory, and where the workspace lives.
    return { DB: interposed(env.DB, wait), [DATABASE]: interposed(WORKSPACE_DB, wait) };
  };
  const run = (act: Act, turn: 0 | 1) =>
    act(owed, client(turn)).finally(() => ready[turn].resolve());
  return Promise.all([run(first, 0).finally(() => firstEnded.resolve()), run(second, 1)]);
}

const webhook = ({ webhookId }: Owed) => Platform.readWebhook({ webhookId });

/** Whether a secret signs what is sent to a subscription now. */
async function signs({ webhookId, url }: Owed, secret: string): Promise<boolean> {
  await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  const { headers, body } = (await receivedBy({ url })).at(-1) as {
    headers: Record<string, string>;
    body: string;
  };
  const [, timestamp = ""] = /t=(\d+)/.exec(headers["x-service-signature"] ?? "") ?? [];
  const { service } = expectedSignatures(secret, String(headers["webhook-id"]), timestamp, body);
  return String(headers["x-service-signature"]).includes(service.split(",")[1] as string);
}

const rotate = (overlapSeconds: number) =>
  call("rotateWebhookSecret", ({ webhookId }) => ({ webhookId, overlapSeconds }));
const JUST_ROTATED =
  "rotateWebhookSecret: webhookId: another call has just rotated its secret, or deleted it";
const update = (changes: object) =>
  call("updateWebhook", ({ webhookId }) => ({ webhookId, ...changes }));
const UNKNOWN = "no such webhook";
const remove = call("deleteWebhook", ({ webhookId }) => ({ webhookId }));
const disable = call("disableWebhook", ({ webhookId }) => ({ webhookId }));
const enable = call("enableWebhook", ({ webhookId }) => ({ webhookId }));
const roll = (overlapSeconds: number) =>
  call("rollApiKey", ({ keyId }) => ({ keyId, overlapSeconds }));
const setQuota = (requestsPerWindow: number) =>
  call("updateApiKey", ({ keyId }) => ({ keyId, requestsPerWindow }));
const limitOf = async ({ api }: Owed) => (await api.get("/v1/leads")).headers["x-ratelimit-limit"];
const create = request((api) =>
  api.post(
    "/v1/webhooks",
    { url: "https://ok-at-once.example/", events: ["lead.created"] },
    { "Idempotency-Key": "k1" },
  ),
);
const erase = request((api, { webhookId }) => api.delete(`/v1/webhooks/${webhookId}`));

let automationId = "";
const pause = request((api) => api.patch(`/v1/automations/${automationId}`, { status: "paused" }));

interface Pair {
  calls: [Act, Act];
  before?(owed: Owed): Promise<unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: each check knows its results
  check(owed: Owed, first: any, second: any): Promise<void>;
}

const PAIRS: Record<string, Pair> = {
  "two rotations without an overlap": {
    calls: [rotate(0), rotate(0)],
    async check(owed, first, second) {
      expect(second).toBe(JUST_ROTATED);
      expect(await signs(owed, first.secret)).toBe(true);
    },
  },
  "a rotation with an overlap, and one without": {
    calls: [rotate(60), rotate(0)],
    async check(owed, first, second) {
      expect(second).toBe(JUST_ROTATED);
      expect(await signs(owed, first.secret)).toBe(true);
    },
  },
  "a rotation, and the end of an overlap": {
    calls: [rotate(60), call("endSecretOverlap", ({ webhookId }) => ({ webhookId }))],
    async check(owed, first, second) {
      expect(second).toBe(JUST_ROTATED.replace("rotateWebhookSecret", "endSecretOverlap"));
      expect(await signs(owed, first.secret)).toBe(true);
      expect((await webhook(owed)).overlapEndsAt).toBe(first.overlapEndsAt);
    },
  },
  "a rotation and a deletion": {
    calls: [remove, rotate(0)],
    async check(_, first, second) {
      expect([first, second]).toEqual([{}, JUST_ROTATED]);
    },
  },
  "two edits of one field, by callers who expect what they have read": {
    calls: [
      (owed, databases) =>
        update({ url: "https://ok-first.example/", expected: { url: owed.url } })(owed, databases),
      (owed, databases) =>
        update({ url: "https://ok-second.example/", expected: { url: owed.url } })(owed, databases),
    ],
    async check(owed, first, second) {
      expect(first).toEqual({});
      expect(second).toBe("updateWebhook: expected.url: another call has changed it");
      expect((await webhook(owed)).url).toBe("https://ok-first.example/");
    },
  },
  "two edits of different fields": {
    calls: [update({ description: "First" }), update({ events: ["run.completed"] })],
    async check(owed, first, second) {
      expect([first, second]).toEqual([{}, {}]);
      const { description, events } = await webhook(owed);
      expect([description, events]).toEqual(["First", ["run.completed"]]);
    },
  },
  "two edits of the headers": {
    calls: [update({ setHeaders: { "X-A": "1" } }), update({ setHeaders: { "X-B": "2" } })],
    async check(owed, first, second) {
      expect([first, second]).toEqual([{}, {}]);
      expect((await webhook(owed)).headers.toSorted()).toEqual(["X-A", "X-B"]);
    },
  },
  "a deletion and an edit": {
    calls: [remove, update({ description: "Second" })],
    async check(owed, first, second) {
      expect([first, second]).toEqual([{}, expect.stringContaining(UNKNOWN)]);
      expect(await errorOf(webhook(owed))).toContain(UNKNOWN);
    },
  },
  "two deletions by clients": {
    calls: [erase, erase],
    async check(_, first, second) {
      expect([first.status, second.status]).toEqual([204, 404]);
    },
  },
  "a replay and a disabling": {
    before: ({ webhookId }) =>
      WORKSPACE_DB.prepare("UPDATE deliveries SET state = 'exhausted' WHERE subscription_id = ?")
        .bind(webhookId)
        .run(),
    calls: [
      disable,
      call("redeliver", ({ webhookId }) => ({
        webhookId,
        since: new Date(Date.now() - 7_200_000).toISOString(),
      })),
    ],
    async check({ webhookId }, first, second) {
      expect([first, second.count ?? second]).toEqual([{}, 0]);
      expect((await statesOf(webhookId)).pending).toBe(undefined);
    },
  },
  "a disabling and an enabling": {
    before: ({ webhookId }) => Platform.disableWebhook({ webhookId }),
    calls: [disable, enable],
    async check(owed, first, second) {
      expect([first, second.nextCursor]).toEqual([{}, null]);
      expect((await webhook(owed)).disabledAt).toBe(null);
    },
  },
  "two creations with one Idempotency-Key": {
    calls: [create, create],
    async check({ workspaceId }, first, second) {
      expect(first.status).toBe(201);
      expect(second).toEqual(first);
      const created = async () =>
        (await Platform.listAuditTrail({ workspaceId })).items
          .filter(({ method, via }) => method === "createWebhook" && via.startsWith("api:"))
          .map(({ webhookId }) => webhookId);
      await expect.poll(created).toEqual([first.id]);
    },
  },
  "a revocation of a key and a creation with it": {
    calls: [call("revokeApiKey", ({ keyId }) => ({ keyId })), create],
    async check(_, first, second) {
      expect([first.webhookIds, second.status]).toEqual([[], 401]);
    },
  },
  "a creation with a key and its revocation": {
    calls: [create, call("revokeApiKey", ({ keyId }) => ({ keyId }))],
    async check(_, first, second) {
      expect([first.status, second.webhookIds]).toEqual([201, [first.id]]);
    },
  },
  "two rotations of an API key": {
    calls: [roll(60), roll(60)],
    async check(_, first, second) {
      expect(second).toContain("this key was rolled before");
      expect((await openApi(first.apiKey).get("/v1/leads")).status).toBe(200);
    },
  },
  "a revocation and a rotation of an API key": {
    calls: [call("revokeApiKey", ({ keyId }) => ({ keyId })), roll(60)],
    async check({ api }, _, second) {
      expect(second).toContain("this key is revoked");
      expect((await api.get("/v1/leads")).status).toBe(401);
    },
  },
  "two changes of a rate limit": {
    before: limitOf,
    calls: [setQuota(111), setQuota(222)],
    async check(owed, first, second) {
      expect([first, second, await limitOf(owed)]).toEqual([{}, {}, "222"]);
    },
  },
  "two grants and denials of access": {
    calls: [
      call("setWorkspaceAccess", ({ workspaceId }) => ({ workspaceId, granted: false })),
      call("setWorkspaceAccess", ({ workspaceId }) => ({ workspaceId, granted: true })),
    ],
    async check({ api }, first, second) {
      expect([first, second]).toEqual([{}, {}]);
      expect((await api.get("/v1/leads")).status).toBe(200);
    },
  },
  "an erasure and the creation of a key": {
    calls: [
      call("eraseWorkspace", ({ workspaceId }) => ({ workspaceId })),
      call("createApiKey", ({ workspaceId }) => ({ workspaceId })),
    ],
    async check(_, first, second) {
      expect([first.done, second]).toEqual([true, expect.stringContaining("no such workspace")]);
    },
  },
  "two pauses by clients": {
    async before({ workspaceId, path, portal }) {
      const update = { events: ["automation.status_changed"] };
      expect((await portal.post(`${path}/update`, update)).status).toBe(200);
      automationId = await recordAutomation(workspaceId, { status: "active" });
    },
    calls: [pause, pause],
    async check({ webhookId }, first, second) {
      expect(first.status).toBe("paused");
      expect(second).toEqual(first);
      const { items } = await Platform.listDeliveries({ webhookId });
      expect(items.filter(({ type }) => type === "automation.status_changed")).toHaveLength(1);
    },
  },
  "a pause by a client and an older report of several automations": {
    async before({ workspaceId }) {
      const reported = {
        reference: "2",
        status: "active",
        updatedAt: "2026-01-01T00:00:00Z",
      } as const;
      automationId = await recordAutomation(workspaceId, reported);
    },
    calls: [
      pause,
      call("recordAutomations", ({ workspaceId }) => ({
        workspaceId,
        automations: ["1", "2", "3"].map((reference) =>
          automationReport(reference, { updatedAt: `2026-01-0${reference}T01:00:00Z` }),
        ),
      })),
    ],
    async check({ api }, first, second) {
      expect([first.status, second.created]).toEqual(["paused", 2]);
      const shown = await api.get(`/v1/automations/${automationId}`);
      expect(shown.body).toMatchObject({ status: "paused" });
    },
  },
};

describe("Of two calls at once, both callers learn what is true:", () => {
  test.each(Object.entries(PAIRS))("%s", async (_, { before, calls, check }) => {
    const owed = await openOwed();
    await before?.(owed);
    const [first, second] = await atOnce(owed, ...calls);
    await check(owed, first, second);
  });
});
