import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { forgetKey } from "../../../src/quota/forget.ts";
import { deployedWith, openApi } from "../../support/api.ts";
import { openKey } from "../../support/gates.ts";

/** The local runtime has no jurisdictions: objects that can only be reached through one. */
function restricted<T extends Env["KEY_GATE"] | Env["ADDRESS_GATE"]>(objects: T, asked: string[]) {
  return {
    getByName: () => expect.unreachable("an object outside the jurisdiction"),
    jurisdiction: (name: string) => {
      asked.push(name);
      return objects;
    },
  } as unknown as T;
}

test("with JURISDICTION, every Durable Object is one of that jurisdiction, if the runtime has any", async () => {
  const keys: string[] = [];
  const addresses: string[] = [];
  const overrides = {
    JURISDICTION: "eu",
    KEY_GATE: restricted(env.KEY_GATE, keys),
    ADDRESS_GATE: restricted(env.ADDRESS_GATE, addresses),
  };
  const { apiKey, keyHash } = await openKey();
  const statusIn = async (key: string, bindings: Partial<Env>) =>
    (await openApi(key, deployedWith(bindings)).get("/v1/leads")).status;
  expect(await statusIn(apiKey, overrides)).toBe(200);
  expect(await statusIn("key_live_invented", overrides)).toBe(401);
  await forgetKey({ ...env, ...overrides }, { keyHash, lastUsedAt: 1 });
  expect([keys, addresses]).toEqual([["eu", "eu"], ["eu"]]);
  expect(await statusIn(apiKey, { JURISDICTION: "eu" })).toBe(200);
});
