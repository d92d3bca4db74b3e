import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { READ_MAX_MS } from "../../../src/contract/limits.ts";
import { app } from "../../../src/http/app.ts";
import { openApi, openWorkspace, Platform, refusal } from "../../support/api.ts";
import { interposedObjects } from "../../support/interposed.ts";
import { shortenTimers } from "../../support/timers.ts";

test.each([
  ["a new key", false],
  ["a cached key", true],
])("a read with %s ends after ten seconds, even if the key's gate stalls", async (_, isCached) => {
  const { apiKey } = await openWorkspace();
  let stalls = false;
  const released = Promise.withResolvers<void>();
  const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
    if (stalls) await released.promise;
    return go();
  });
  const context = createExecutionContext();
  const fetch = async (request: Request) => app.fetch(request, { ...env, KEY_GATE }, context);
  const api = openApi(apiKey, fetch);
  if (isCached) expect((await api.get("/v1/leads")).status).toBe(200);
  stalls = true;
  const timers = shortenTimers(READ_MAX_MS);
  const answer = api.get("/v1/leads").then(({ status }) => status);
  const first = await Promise.race([answer, sleep(5_000, "no response")]);
  released.resolve();
  await answer;
  await waitOnExecutionContext(context);
  timers.mockRestore();
  expect(first).toBe(500);
});

test("a read that has ended keeps its response if it is refused while its client sends a body", async () => {
  const { workspaceId, apiKey } = await openWorkspace();
  await Platform.setWorkspaceAccess({ workspaceId, granted: false });
  const released = Promise.withResolvers<void>();
  const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
    await released.promise;
    return go();
  });
  const timers = shortenTimers(READ_MAX_MS);
  const { readable, writable } = new IdentityTransformStream();
  const writer = writable.getWriter();
  const api = openApi(apiKey, async (request) => {
    // The constructor of `Request` allows no body for a GET. A client may send one.
    Object.defineProperty(request, "body", { value: readable });
    return app.fetch(request, { ...env, KEY_GATE }, createExecutionContext());
  });
  const answer = api.get("/v1/leads");
  // By then, the read has ended, and the rest of the body is awaited.
  await sleep(200);
  released.resolve();
  await sleep(200);
  await writer.close();
  timers.mockRestore();
  const { headers, ...late } = refusal(500, "internal_error", { retry_after_seconds: 5 });
  expect(await answer).toEqual({ ...late, headers: { ...headers, "retry-after": "5" } });
});

test("a write does not end after ten seconds, because its client must learn whether it has happened", async () => {
  const { apiKey } = await openWorkspace();
  const timers = shortenTimers(READ_MAX_MS);
  const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
    // They end after those of a read, because they begin later.
    await new Promise((resolve) => setTimeout(resolve, READ_MAX_MS));
    return go();
  });
  const context = createExecutionContext();
  const api = openApi(apiKey, async (request) => app.fetch(request, { ...env, KEY_GATE }, context));
  const answers = await Promise.all([
    api.post("/v1/webhooks", {}),
    api.patch("/v1/automations/aut_1", { status: "paused" }),
    api.delete("/v1/webhooks/whk_1"),
  ]);
  await waitOnExecutionContext(context);
  timers.mockRestore();
  expect(answers.map(({ status }) => status)).toEqual([400, 404, 404]);
});
