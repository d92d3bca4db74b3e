import { env } from "cloudflare:workers";
import { beforeEach, expect, test, vi } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { open, parseEncryptionKeys } from "../../../src/encryption/seal.ts";
import { createDataKey, openedDataKeys } from "../../../src/workspaces/data-keys.ts";
import { deployedWith, openApi, openWorkspace, platformOf, recordLead } from "../../support/api.ts";
import {
  announceLeads,
  consumeFor,
  isolated,
  receivedBy,
  subscribe,
} from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { insertWorkspaces } from "../../support/rows.ts";

const NEW_KEY = "new:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
const LOST_KEY = "lost:YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=";
const OLD_KEYS = env.ENCRYPTION_KEYS;

/** Reseals as a deployment does whose new key comes before the old ones. */
async function reseal() {
  const rotated = { ...env, ENCRYPTION_KEYS: `${NEW_KEY},${OLD_KEYS}` };
  return platformOf(rotated).resealSecrets({});
}

/** Workspaces whose data keys are sealed under the first of `keys`; returns their ids. */
async function createAll(count: number, keys = OLD_KEYS): Promise<string[]> {
  const ids = Array.from({ length: count }, () => randomId("workspace"));
  const rows = ids.map(async (id) => ({ id, sealedDataKey: await createDataKey(keys, id) }));
  await insertWorkspaces(await Promise.all(rows), env.DB);
  return ids;
}

/** How many of these data keys the new key alone decrypts. */
async function readable(ids: string[]): Promise<number> {
  const { results } = await env.DB.prepare(
    "SELECT id, sealed_data_key FROM workspaces WHERE id IN (SELECT value FROM json_each(?))",
  )
    .bind(JSON.stringify(ids))
    .all<{ id: string; sealed_data_key: string }>();
  const ring = parseEncryptionKeys(NEW_KEY);
  const opened = await Promise.allSettled(
    results.map((row) => open(ring, row.id, row.sealed_data_key)),
  );
  return opened.filter(({ status }) => status === "fulfilled").length;
}

beforeEach(() => env.DB.prepare("UPDATE workspaces SET sealed_data_key = NULL").run());

test("resealSecrets re-encrypts 100 data keys per call, until all are under the first key", async () => {
  const ids = await createAll(105);
  expect(await reseal()).toEqual({ resealed: 100, remaining: 5, unreadable: 0 });
  expect(await reseal()).toEqual({ resealed: 5, remaining: 0, unreadable: 0 });
  expect(await reseal()).toEqual({ resealed: 0, remaining: 0, unreadable: 0 });
  expect(await readable(ids)).toBe(105);
});

test("resealSecrets tells a key from the first one whose id is the beginning of its own", async () => {
  await createAll(2);
  expect(OLD_KEYS).toMatch(/^test:/);
  const ENCRYPTION_KEYS = `${NEW_KEY.replace("new:", "te:")},${OLD_KEYS}`;
  const all = { resealed: 2, remaining: 0, unreadable: 0 };
  expect(await platformOf({ ...env, ENCRYPTION_KEYS }).resealSecrets({})).toEqual(all);
});

test("resealSecrets skips data keys that cannot be decrypted, and logs their workspaces", async () => {
  const lost = await createAll(150, LOST_KEY);
  const damagedId = randomId("workspace");
  await insertWorkspaces([{ id: damagedId, sealedDataKey: "test.AAAA" }], env.DB);
  const good = await createAll(105);
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
  expect(new Set(lines.map(({ event }) => event))).toEqual(new Set(["data_key_decrypt_failed"]));
  const named = lines.flatMap(({ ids }) => ids.split(" "));
  expect(new Set(named)).toEqual(new Set([...lost, damagedId]));
  expect(await readable(good)).toBe(105);
});

test("resealSecrets does not bring back the data key of a workspace that is erased meanwhile", async () => {
  const [gone = "", kept = ""] = await createAll(2);
  const forget = env.DB.prepare("UPDATE workspaces SET sealed_data_key = NULL WHERE id = ?").bind(
    gone,
  );
  const DB = interposed(env.DB, async ({ texts, go }) => {
    if (texts.some((text) => /^update "workspaces"/i.test(text))) await forget.run();
    return go();
  });
  const rotated = { ...env, DB, ENCRYPTION_KEYS: `${NEW_KEY},${OLD_KEYS}` };
  await platformOf(rotated).resealSecrets({});
  const { results } = await env.DB.prepare(
    "SELECT id FROM workspaces WHERE sealed_data_key IS NOT NULL",
  ).all();
  expect(results).toEqual([{ id: kept }]);
});

test("resealSecrets makes the old keys unnecessary to read leads and to sign deliveries", async () => {
  const { workspaceId, apiKey } = await openWorkspace();
  await recordLead(workspaceId, { name: "Zoé" });
  const { id, url } = await subscribe(workspaceId);
  await announceLeads(workspaceId, 1, Date.now());
  const leadsWith = async (ENCRYPTION_KEYS: string) => {
    openedDataKeys.clear();
    return openApi(apiKey, deployedWith({ ENCRYPTION_KEYS })).get("/v1/leads");
  };
  expect(await leadsWith(NEW_KEY)).toMatchObject({ status: 500 });
  expect(await reseal()).toEqual({ resealed: 1, remaining: 0, unreadable: 0 });
  const body = { data: [{ name: "Zoé" }] };
  for (const keys of [NEW_KEY, `${OLD_KEYS},${NEW_KEY}`])
    expect(await leadsWith(keys)).toMatchObject({ status: 200, body });
  openedDataKeys.clear();
  await consumeFor([id], isolated({ ENCRYPTION_KEYS: NEW_KEY }).env);
  expect(await receivedBy({ url })).toHaveLength(1);
});

test("resealSecrets counts a workspace that is locked for a move, and skips it", async () => {
  const [locked = "", other = ""] = await createAll(2);
  const lock = env.DB.prepare("UPDATE workspaces SET write_lock = ? WHERE id = ?");
  await lock.bind("locked", locked).run();
  expect(await reseal()).toEqual({ resealed: 1, remaining: 1, unreadable: 0 });
  expect(await readable([other])).toBe(1);
  await lock.bind(null, locked).run();
  expect(await reseal()).toEqual({ resealed: 1, remaining: 0, unreadable: 0 });
});
