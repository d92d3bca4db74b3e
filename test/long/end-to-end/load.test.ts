import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { until } from "../../support/until.ts";

/** However slow the machine is. */
const PATIENCE_MS = 30_000;

let runtime: Runtime;

beforeAll(async () => {
  runtime = await startRuntime();
});

afterAll(() => runtime.stop());

async function openKey(requestsPerWindow: number) {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const { keyId, apiKey } = await PLATFORM.createApiKey({ workspaceId, requestsPerWindow });
  const get = async () => {
    const startedAt = performance.now();
    const answer = await fetch(new URL("/v1/automations", runtime.url), {
      headers: { Authorization: `Bearer ${apiKey}` },
    });
    await answer.arrayBuffer();
    return { startedAt, status: answer.status, headers: answer.headers };
  };
  return { workspaceId: String(workspaceId), keyId: String(keyId), get };
}

/**
 * 50 clients that send requests continuously while `change` is made; the result of each request.
 */
async function hammer(
  get: Awaited<ReturnType<typeof openKey>>["get"],
  change: () => Promise<unknown>,
) {
  const answers: Awaited<ReturnType<typeof get>>[] = [];
  let going = true;
  const clients = Array.from({ length: 50 }, async () => {
    while (going) answers.push(await get());
  });
  try {
    await until(() => answers.length > 100, PATIENCE_MS);
    const before = [...answers];
    await change();
    const changedAt = performance.now();
    const after = () => answers.filter(({ startedAt }) => startedAt > changedAt);
    await until(() => after().length > 100, PATIENCE_MS);
    return { before, after: after() };
  } finally {
    going = false;
    await Promise.all(clients);
  }
}

describe("with 50 concurrent clients", () => {
  test("no request that starts after the revocation has returned is admitted", async () => {
    const { keyId, get } = await openKey(1_000_000);
    const { before, after } = await hammer(get, () => runtime.env.PLATFORM.revokeApiKey({ keyId }));
    expect(new Set(before.map(({ status }) => status))).toEqual(new Set([200]));
    // Their shared address soon has too many failures.
    for (const { status } of after) expect([401, 429]).toContain(status);
  });

  test("no request that starts after the loss of access has returned is admitted", async () => {
    const { workspaceId, get } = await openKey(1_000_000);
    const { PLATFORM } = runtime.env;
    const { before, after } = await hammer(get, () =>
      PLATFORM.setWorkspaceAccess({ workspaceId, granted: false }),
    );
    expect(new Set(before.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(after.map(({ status }) => status))).toEqual(new Set([403]));
    await PLATFORM.setWorkspaceAccess({ workspaceId, granted: true });
    expect((await get()).status).toBe(200);
  });
});

test("of 500 concurrent requests against a limit of 100, exactly 100 are admitted, counting down", async () => {
  const { get } = await openKey(100);
  const answers = await Promise.all(Array.from({ length: 500 }, get));
  const admitted = answers.filter(({ status }) => status === 200);
  const refused = answers.filter(({ status }) => status === 429);
  expect([admitted.length, refused.length]).toEqual([100, 400]);
  const left = admitted.map(({ headers }) => Number(headers.get("X-RateLimit-Remaining")));
  expect(left.toSorted((a, b) => a - b)).toEqual([...Array(100).keys()]);
  for (const { headers } of refused) {
    expect(headers.get("X-RateLimit-Remaining")).toBe("0");
    expect(headers.get("Retry-After")).toBe(headers.get("X-RateLimit-Reset"));
  }
});
