import fc from "fast-check";
import { expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { mintApiKey } from "../../../src/quota/api-key.ts";
import { opened } from "../../node/support/opened.ts";
import { shoot } from "./client.ts";
import { Contract } from "./document.ts";
import { expectEnvelope } from "./envelope.ts";
import { replayable } from "./replay.ts";
import { type Shot, shots } from "./requests.ts";

const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 5_000);
/** Requests sent concurrently: each iteration of the property sends one volley. */
const VOLLEY = 20;

const runtime = await opened(startRuntime({ vars: { ALLOW_LOCAL_WEBHOOKS: "" } }));

/** A workspace with some of everything. */
async function openFilledWorkspace() {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const key = { workspaceId, requestsPerWindow: 1_000_000 };
  const { apiKey } = await PLATFORM.createApiKey(key);
  const agent = { reference: "agent", name: `Canari ${workspaceId}` };
  const { ids } = await PLATFORM.recordAutomations({
    workspaceId,
    automations: (["active", "paused", "draft", "error"] as const).map((status) => ({
      reference: status,
      type: "social_story" as const,
      provider: "instagram",
      agent,
      status,
    })),
  });
  const automationIds = [...ids].map(String);
  const leads = Array.from({ length: 30 }, (_, i) => ({
    reference: `lead-${i}`,
    source: "social" as const,
    agent,
    name: `Canari ${workspaceId}`,
  }));
  await PLATFORM.recordLeads({ workspaceId, leads });
  const runs = Array.from({ length: 30 }, (_, i) => ({
    reference: `run-${i}`,
    automationId: automationIds[i % 2] ?? "",
    status: "success" as const,
    triggerType: "comment" as const,
  }));
  await PLATFORM.recordRuns({ workspaceId, runs });
  const headers = { Authorization: `Bearer ${apiKey}` };
  const lists = ["/v1/leads", "/v1/runs", `/v1/automations/${automationIds[0]}/runs`];
  const pages = await Promise.all(
    lists.map((path) =>
      shoot(runtime.url, { method: "GET", path: `${path}?limit=2`, headers, body: null }),
    ),
  );
  const cursors = pages.map(({ body }) => (body as { next_cursor: string }).next_cursor);
  return { workspaceId: String(workspaceId), apiKey: String(apiKey), automationIds, cursors };
}

test(`${REQUESTS} generated requests are all answered as documented`, {
  timeout: 60_000 + REQUESTS * 40,
}, async () => {
  const contract = await Contract.read(runtime.url);
  const own = await openFilledWorkspace();
  const foreign = await openFilledWorkspace();
  const statuses: Record<number, number> = {};
  const fire = async (shot: Shot, key: string) => {
    const headers = { ...shot.headers, Authorization: key && `Bearer ${key}` };
    const answer = await shoot(runtime.url, { ...shot, headers });
    statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
    expectEnvelope(answer);
    expect(JSON.stringify(answer.body)).not.toContain(foreign.workspaceId);
    const { pathname } = new URL(`http://localhost${shot.path}`);
    const operation = contract.find(shot.method, pathname);
    if (operation) contract.expectAllowed(operation, answer, shot.method !== "HEAD");
    else if (pathname !== "/openapi.json") expect(answer.status).toBeGreaterThanOrEqual(400);
  };
  const ids = [...own.automationIds, ...foreign.automationIds, "aut_unknown", "whk_unknown"];
  const cursors = [...own.cursors, ...foreign.cursors];
  const good = { weight: 12, arbitrary: fc.constant(own.apiKey) };
  const unknown = await mintApiKey(runtime.env.API_KEY_CHECKSUM_KEYS);
  const key = fc.oneof(good, fc.constantFrom(unknown, "key_live_x", ""));
  const volley = fc.array(fc.tuple(shots(ids, cursors), key), {
    minLength: VOLLEY,
    maxLength: VOLLEY,
  });
  await fc.assert(
    fc.asyncProperty(volley, async (requests) => {
      await Promise.all(requests.map(([shot, key]) => fire(shot, key)));
    }),
    replayable(Math.ceil(REQUESTS / VOLLEY)),
  );
  console.log(`fuzzed: ${JSON.stringify(statuses)}`);
  // The generator reaches every kind of response, not only refusals.
  for (const status of [200, 201, 400, 401, 404, 413, 415, 422, 429])
    expect(statuses[status], `answers with ${status}`).toBeGreaterThan(0);
});
