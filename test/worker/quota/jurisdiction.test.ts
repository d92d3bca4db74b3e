import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { forgetKey } from "../../../src/quota/forget.ts";
import { deployedWith, openApi, openWorkspace } from "../../support/api.ts";

/** The local runtime has no jurisdictions: objects that can only be reached through one. */
function restricted<T extends Env["KEY_GATE"] | Env["ADDRESS_GATE"]>(objects: T, asked: string[]) {
  return {
    getByName: () => {
      throw new Error("an object outside the jurisdiction");
    },
    jurisdiction: (name: string) => {
      asked.push(name);
      return objects;
    },
  } as unknown as T;
}

test("with JURISDICTION, every Durable Object is one of that jurisdiction", async () => {
  const keys: string[] = [];
  const addresses: string[] = [];
  const overrides = {
    JURISDICTION: "eu",
    KEY_GATE: restricted(env.KEY_GATE, keys),
    ADDRESS_GATE: restricted(env.ADDRESS_GATE, addresses),
  };
  const fetch = deployedWith(overrides);
  const { apiKey } = await openWorkspace();
  const get = (key: string) => openApi(key, fetch).get("/v1/leads");
  expect((await get(apiKey)).status).toBe(200);
  expect((await get("key_live_invented")).status).toBe(401);
  await forgetKey({ ...env, ...overrides }, { keyHash: await hashApiKey(apiKey), lastUsedAt: 1 });
  expect(keys).toEqual(["eu", "eu"]);
  expect(addresses).toEqual(["eu"]);
});

test("the local runtime, which has no jurisdictions, does without", async () => {
  const { apiKey } = await openWorkspace();
  const fetch = deployedWith({ JURISDICTION: "eu" });
  expect((await openApi(apiKey, fetch).get("/v1/leads")).status).toBe(200);
});
