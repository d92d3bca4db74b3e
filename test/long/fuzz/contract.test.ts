import fc from "fast-check";
import { expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { mintApiKey } from "../../../src/rate-limit/key-text.ts";
import { opened } from "../../node/support/opened.ts";
import { numbered, openWorkspace } from "../../node/support/workspace.ts";
import { shoot } from "./client.ts";
import { readContract } from "./document.ts";
import { expectEnvelope } from "./envelope.ts";
import { replayable } from "./replay.ts";
import { type Shot, shots } from "./requests.ts";

const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 1_000);
/** Requests sent concurrently: each iteration of the property sends one volley. */
const VOLLEY = 20;

const runtime = await opened(startRuntime({ assets: true, vars: { ALLOW_LOCAL_WEBHOOKS: "" } }));

const FOREIGN = "Canari d’un autre";

/** A workspace with some of everything, which carries its name. */
async function openFilledWorkspace(name: string) {
  const opened = await openWorkspace(runtime, { requestsPerWindow: 1_000_000, agentName: name });
  const { api, apiKey, recordAutomations, recordLeads, recordRuns } = opened;
  const automationIds: string[] = [];
  for (const status of ["active", "paused", "draft", "error"] as const)
    automationIds.push(...(await recordAutomations([status], status)));
  const [first = "", second = ""] = automationIds;
  await recordLeads(numbered(30), () => ({ name }));
  await recordRuns(first, numbered(15));
  await recordRuns(second, numbered(15, 16));
  const lists = ["/v1/leads", "/v1/runs", `/v1/automations/${first}/runs`];
  const pages = await Promise.all(
    lists.map((path) => api<{ next_cursor: string }>("GET", `${path}?limit=2`)),
  );
  return { apiKey, automationIds, cursors: pages.map(({ next_cursor }) => next_cursor) };
}

test(`${REQUESTS} generated requests are all answered as documented`, {
  timeout: 60_000 + REQUESTS * 100,
}, async () => {
  const contract = await readContract(runtime.url);
  const own = await openFilledWorkspace("Agence");
  const foreign = await openFilledWorkspace(FOREIGN);
  const statuses: Record<number, number> = {};
  const fire = async (shot: Shot, key: string) => {
    const headers = { ...shot.headers, Authorization: key && `Bearer ${key}` };
    const answer = await shoot(runtime.url, { ...shot, headers });
    statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
    expectEnvelope(answer);
    expect(JSON.stringify(answer.body)).not.toContain(FOREIGN);
    const { pathname } = new URL(`http://localhost${shot.path}`);
    const operation = contract.find(shot.method, pathname);
    if (operation) contract.expectAllowed(operation, answer, shot.method !== "HEAD");
    else if (pathname !== "/openapi.json") expect(answer.status).toBeGreaterThanOrEqual(400);
  };
  const { automationIds } = own;
  // The own ones more often: two of the four cannot be paused, which few requests get as far as.
  const mine = [...automationIds, ...automationIds, ...automationIds];
  const ids = [...mine, ...foreign.automationIds, "aut_unknown", "whk_unknown"];
  const cursors = [...own.cursors, ...foreign.cursors];
  const good = { weight: 12, arbitrary: fc.constant(own.apiKey) };
  const unknown = await mintApiKey(runtime.env.API_KEY_CHECKSUM_KEYS);
  const key = fc.oneof(good, fc.constantFrom(unknown, "key_live_x", ""));
  const volley = fc.array(fc.tuple(shots(contract.operations, ids, cursors), key), {
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
