import { env } from "cloudflare:workers";
import { beforeEach, expect, test, vi } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { subscriptions } from "../../../src/db/schema.ts";
import { openedDataKeys } from "../../../src/encryption/personal-data.ts";
import { open, parseEncryptionKeys, seal } from "../../../src/encryption/seal.ts";
import { rotateSecret } from "../../../src/webhooks/rotation.ts";
import { mintSecret } from "../../../src/webhooks/signature.ts";
import { deployedWith, openApi, openWorkspace, recordLead } from "../../support/api.ts";
import { platformOf } from "../../support/databases.ts";
import {
  createWorkspace,
  db,
  observedDatabase,
  setSubscription,
  subscriptionRow,
} from "../../support/deliveries.ts";

const NEW_KEY = "new:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
const LOST_KEY = "lost:YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=";
const OLD_KEYS = env.ENCRYPTION_KEYS;

/** Reseals as a deployment does whose new key comes before the old ones. */
async function reseal(DB = env.DB) {
  const rotated = { ...env, DB, ENCRYPTION_KEYS: `${NEW_KEY},${OLD_KEYS}` };
  return platformOf(rotated).resealSecrets({});
}

/** Subscriptions whose secrets are sealed under the first of `keys`; returns the secrets by id. */
async function subscribeAll(count: number, keys = OLD_KEYS): Promise<Map<string, string>> {
  const workspaceId = await createWorkspace();
  await env.DB.prepare("UPDATE workspaces SET data_key = NULL").run();
  const secrets = new Map(Array.from({ length: count }, () => [randomId("webhook"), mintSecret()]));
  const insert = env.DB.prepare(
    "INSERT INTO subscriptions (id, workspace_id, url, events, sealed_secret, created_at) VALUES (?, ?, '', '[]', ?, 0)",
  );
  const rows = [...secrets].map(async ([id, secret]) =>
    insert.bind(id, workspaceId, await seal(parseEncryptionKeys(keys), id, secret)),
  );
  await env.DB.batch(await Promise.all(rows));
  return secrets;
}

/** The secrets of subscriptions, or all, as they are stored: opened with the new key alone. */
async function secretsOf(ids?: Iterable<string>): Promise<Map<string, string>> {
  const wanted = ids && new Set(ids);
  const ring = parseEncryptionKeys(NEW_KEY);
  const rows = (await db.select().from(subscriptions)).filter(({ id }) => wanted?.has(id) ?? true);
  const opened = rows.map(
    async ({ id, sealedSecret }) => [id, await open(ring, id, sealedSecret)] as const,
  );
  return new Map(await Promise.all(opened));
}

beforeEach(() => db.delete(subscriptions));

test("a reseal reseals 100 secrets per call under the first key, until none needs the others", async () => {
  const secrets = await subscribeAll(105);
  expect(await reseal()).toEqual({ resealed: 100, remaining: 5, unreadable: 0 });
  expect(await reseal()).toEqual({ resealed: 5, remaining: 0, unreadable: 0 });
  expect(await reseal()).toEqual({ resealed: 0, remaining: 0, unreadable: 0 });
  expect(await secretsOf()).toEqual(secrets);
});

test("a reseal skips secrets that cannot be decrypted, logs them, and ends", async () => {
  const lost = await subscribeAll(150, LOST_KEY);
  const damaged = await subscribeAll(1);
  const [damagedId = ""] = damaged.keys();
  await setSubscription(damagedId, { sealedSecret: "test.AAAA" });
  const good = await subscribeAll(105);
  const log = vi.spyOn(console, "log");
  const first = await reseal();
  expect(first.resealed).toBe(100);
  expect(first.remaining + first.unreadable).toBe(5 + 151);
  log.mockClear();
  expect(await reseal()).toEqual({ resealed: 5, remaining: 0, unreadable: 151 });
  expect(await reseal()).toEqual({ resealed: 0, remaining: 0, unreadable: 151 });
  const lines = log.mock.calls
    .map(([line]) => JSON.parse(String(line)))
    .filter(({ event }) => event !== "platform_call");
  expect(new Set(lines.map(({ event }) => event))).toEqual(new Set(["secrets_unreadable"]));
  const named = lines.flatMap(({ ids }) => ids.split(" "));
  expect(new Set(named)).toEqual(new Set([...lost.keys(), damagedId]));
  for (const secret of [...lost.values(), ...damaged.values()])
    expect(JSON.stringify(lines)).not.toContain(secret);
  expect(await secretsOf(good.keys())).toEqual(good);
});

test("a reseal never restores a secret that was rotated in the meantime, and reseals the earlier one, too", async () => {
  const secrets = await subscribeAll(2);
  const [[rotatedId, earlier] = ["", ""]] = secrets;
  let rotated = "";
  const { DB } = observedDatabase({
    before: async (_, texts) => {
      if (!rotated && texts.some((text) => /set "sealed_secret"/.test(text)))
        rotated = (await rotateSecret(db, OLD_KEYS, rotatedId, 600, Date.now())).secret;
    },
  });
  expect(await reseal(DB)).toMatchObject({ remaining: 1, unreadable: 0 });
  expect(await reseal()).toEqual({ resealed: 1, remaining: 0, unreadable: 0 });
  expect(await secretsOf()).toEqual(new Map([...secrets, [rotatedId, rotated]]));
  const { earlierSecrets } = await subscriptionRow(rotatedId);
  const [{ sealedSecret = "" } = {}] = earlierSecrets ?? [];
  expect(await open(parseEncryptionKeys(NEW_KEY), rotatedId, sealedSecret)).toBe(earlier);
});

test("a reseal reseals the data keys of workspaces, whose leads can then be read without the old keys", async () => {
  const { workspaceId, apiKey } = await openWorkspace();
  const others = env.DB.prepare("UPDATE workspaces SET data_key = NULL WHERE id <> ?");
  await others.bind(workspaceId).run();
  await recordLead(workspaceId, { name: "Zoé" });
  const leadsWith = async (ENCRYPTION_KEYS: string) => {
    openedDataKeys.clear();
    return openApi(apiKey, deployedWith({ ENCRYPTION_KEYS })).get("/v1/leads");
  };
  expect(await leadsWith(NEW_KEY)).toMatchObject({ status: 500 });
  expect(await reseal()).toEqual({ resealed: 1, remaining: 0, unreadable: 0 });
  const body = { data: [{ name: "Zoé" }] };
  for (const keys of [NEW_KEY, `${OLD_KEYS},${NEW_KEY}`])
    expect(await leadsWith(keys)).toMatchObject({ status: 200, body });
});
