import { env, exports } from "cloudflare:workers";
import { expect, test, vi } from "vitest";
import {
  type Answer,
  authorizedBy,
  deployedWith,
  freshAddress,
  inventedKey,
  openApi,
  openWorkspace,
  rateLimitOf,
  refusal,
  send,
} from "../../support/api.ts";

/*
 * What strangers ask costs no call of a Durable Object, because each call may wake one; only a failed
 * authentication is counted by one.
 */

const NO_WINDOW = { limit: Number.NaN, remaining: Number.NaN, resetSeconds: Number.NaN };

/** A deployment that counts the calls of gates. */
function deployCounted() {
  const keys = vi.fn((name: string) => env.KEY_GATE.getByName(name));
  const addresses = vi.fn((name: string) => env.ADDRESS_GATE.getByName(name));
  const fetch = deployedWith({
    KEY_GATE: { getByName: keys } as unknown as Env["KEY_GATE"],
    ADDRESS_GATE: { getByName: addresses } as unknown as Env["ADDRESS_GATE"],
  });
  const calls = () => [keys.mock.calls.length, addresses.mock.calls.length];
  return { fetch, calls };
}

const hundred = async (ask: (i: number) => Promise<Answer>) => {
  const answers: Answer[] = [];
  for (let i = 0; i < 100; i++) answers.push(await ask(i));
  return answers;
};

test.each([
  ["/nowhere, from a network each", 404, "/nowhere", (i: number) => `2001:db8:${i}::1`],
  ["/openapi.json, from one address", 200, "/openapi.json", () => "203.0.113.9"],
])(
  "a hundred requests for %s, call no gate, and their answers show no window",
  async (_, status, path, from) => {
    const { fetch, calls } = deployCounted();
    const answers = await hundred((i) =>
      send(path, { headers: { "CF-Connecting-IP": from(i) } }, fetch),
    );
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([status]));
    expect(answers.map(rateLimitOf)).toEqual(Array(100).fill(NO_WINDOW));
    expect(calls()).toEqual([0, 0]);
  },
);

test("a hundred preflights from one address call no gate, do not count, and show its window as far as it is known", async () => {
  const { fetch, calls } = deployCounted();
  const asked = {
    "CF-Connecting-IP": freshAddress(),
    Origin: "https://page.example",
    "Access-Control-Request-Method": "GET",
    "Access-Control-Request-Headers": "authorization",
  };
  const preflight = (more = {}) =>
    send("/v1/leads", { method: "OPTIONS", headers: { ...asked, ...more } }, fetch);
  for (const answer of await hundred(() => preflight())) {
    expect(answer).toEqual(refusal(401, "invalid_api_key"));
    expect(rateLimitOf(answer)).toEqual({ limit: 20, remaining: 20, resetSeconds: 300 });
  }
  expect(calls()).toEqual([0, 0]);
  // With a key it is no preflight, but a guess.
  await preflight({ Authorization: `Bearer ${await inventedKey()}` });
  expect(rateLimitOf(await preflight())).toMatchObject({ limit: 20, remaining: 19 });
  for (let i = 0; i < 19; i++) await authorizedBy(null, asked["CF-Connecting-IP"]);
  expect((await preflight()).status).toBe(429);
  expect(calls()).toEqual([0, 1]);
});

test("a revoked key from a blocked address calls each gate once in two seconds", async () => {
  const { fetch, calls } = deployCounted();
  const { apiKey, keyId } = await openWorkspace();
  const address = freshAddress();
  expect((await openApi(apiKey).get("/v1/leads")).status).toBe(200);
  await exports.Platform.revokeApiKey({ keyId });
  for (let i = 0; i < 20; i++) await authorizedBy(null, address);
  const headers = { "CF-Connecting-IP": address, Authorization: `Bearer ${apiKey}` };
  const now = Date.now();
  vi.useFakeTimers({ toFake: ["Date"], now });
  for (const answer of await hundred(() => send("/v1/leads", { headers }, fetch))) {
    expect(answer.status).toBe(429);
    expect(rateLimitOf(answer)).toMatchObject({ limit: 20, remaining: 0 });
  }
  const [keys = 0, addresses = 0] = calls();
  expect([keys, addresses]).toEqual([1, 0]);
  vi.setSystemTime(now + 2_100);
  expect((await send("/v1/leads", { headers }, fetch)).status).toBe(429);
  expect(calls()).toEqual([2, 1]);
});
