import { createExecutionContext } from "cloudflare:test";
import { expect, test } from "vitest";
import { openedDataKeys } from "../../../src/encryption/personal-data.ts";
import { Platform } from "../../../src/platform/entrypoint.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { deployedWith, leadReport, openApi } from "../../support/api.ts";
import {
  consumeFor,
  expectedSignatures,
  isolated,
  receivedBy,
  subscriberUrl,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { DATABASE } from "../../support/placement.ts";
import { exchange, portalOf } from "../../support/portal.ts";

keepLog();

const KEYS: Record<string, string> = { k1: btoa("1".repeat(32)), k2: btoa("2".repeat(32)) };

/** A version of the Worker whose secrets have these keys, in this order. */
function versionWith(encryption: string, others = encryption) {
  const ringOf = (ids: string) => ids.replaceAll(/k\d/g, (id) => `${id}:${KEYS[id]}`);
  const secrets = {
    ENCRYPTION_KEYS: ringOf(encryption),
    API_KEY_CHECKSUM_KEYS: ringOf(others),
    PORTAL_SIGNING_KEYS: ringOf(others),
  };
  // Its wakes reach no consumer of the runtime, which has other keys.
  const bindings = isolated(secrets).env;
  const platform = new Platform(createExecutionContext(), bindings);
  return { bindings, platform, fetch: deployedWith(secrets) };
}

type Version = ReturnType<typeof versionWith>;
type Created = { id: string; url: string; secret: string };

/** Creates what the secrets protect, each under the version's first keys. */
async function createWith({ platform, fetch }: Version) {
  const { workspaceId } = await platform.createWorkspace({ name: "Agence", database: DATABASE });
  const { apiKey } = await platform.createApiKey({ workspaceId });
  const webhook = { url: subscriberUrl(), events: ["lead.created"] };
  const api = openApi(apiKey, fetch);
  const { body } = await api.post<Created>("/v1/webhooks", webhook);
  await platform.recordLeads({ workspaceId, leads: [leadReport("1", { name: "Zoé" })] });
  const link = new URL((await platform.createPortalLink({ workspaceId })).url).hash.slice(1);
  const session = (await exchange(link, fetch)).body.token;
  return { workspaceId, apiKey, ...body, link, session };
}

/** Uses all of that in an isolate of the version that has not decrypted anything yet. */
async function useWith(
  { bindings, platform, fetch }: Version,
  { workspaceId, apiKey, url, id, secret, link, session }: Awaited<ReturnType<typeof createWith>>,
) {
  openedDataKeys.clear();
  const listed = await openApi(apiKey, fetch).get<{ data: Lead[] }>("/v1/leads");
  openedDataKeys.clear();
  await platform.recordLeads({ workspaceId, leads: [leadReport("2")] });
  await consumeFor([id], bindings);
  const posts = await receivedBy({ url });
  const signed = posts.map(async ({ headers, body }) => {
    const timestamp = headers["webhook-timestamp"] ?? "";
    const expected = await expectedSignatures(secret, headers["webhook-id"] ?? "", timestamp, body);
    return headers["x-service-signature"] === expected.service;
  });
  const portal = [await exchange(link, fetch), await portalOf(session, fetch).get("/webhooks")];
  return {
    lead: listed.body.data?.[0]?.name ?? listed.status,
    signatures: await Promise.all(signed),
    portal: portal.map(({ status }) => status),
  };
}

const WORKS = { lead: "Zoé", signatures: [true, true], portal: [200, 200] };

/** The documented rotation: what the secret is in each deployment. */
const DEPLOYMENTS = ["k1", "k1,k2", "k2,k1", "k2"];

test.each(DEPLOYMENTS.slice(1).map((next, i) => [DEPLOYMENTS[i] as string, next]))(
  "while a version with %s is replaced by one with %s, each uses what the other creates",
  async (...pair) => {
    const [old, next] = pair.map((ids) => versionWith(ids)) as [Version, Version];
    expect(await useWith(next, await createWith(old))).toEqual(WORKS);
    expect(await useWith(old, await createWith(next))).toEqual(WORKS);
  },
);

test("resealed secrets and leads can be used with the old key in front, and without it", async () => {
  const versions = DEPLOYMENTS.slice(1).map((ids) => versionWith(ids, "k1"));
  for (const version of versions) {
    const created = await createWith(versionWith("k1"));
    let result = { resealed: 0, remaining: 1 };
    while (result.remaining > 0) result = await versionWith("k2,k1").platform.resealSecrets({});
    // The last of them: a webhook's secret and a workspace's data key.
    expect(result.resealed).toBeGreaterThanOrEqual(2);
    expect(await useWith(version, created)).toEqual(WORKS);
  }
});

test("a version that does not have the new key yet cannot use what is created with it", async () => {
  const created = await createWith(versionWith("k2,k1"));
  const old = versionWith("k1");
  expect((await openApi(created.apiKey, old.fetch).get("/v1/leads")).status).toBe(401);
  await expect(useWith(old, created)).rejects.toThrow("no encryption key k2");
});
