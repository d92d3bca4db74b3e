import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { type BuiltClient, buildClient, runNpm } from "../../node/support/client.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { until } from "../../support/until.ts";

const WINDOW_SECONDS = 3;
const AGENT = { reference: "lyon", name: "Agence Lumière Lyon" };

/** The requests, as logged by the service. */
const requests: { workspaceId: string; route: string; status: number }[] = [];

const runtime = await opened(
  startRuntime({
    vars: { QUOTA_WINDOW_SECONDS: WINDOW_SECONDS },
    onLog: (line) => {
      // The runtime itself also prints lines.
      if (!line.startsWith("{")) return;
      const { event, workspaceId, route, status } = JSON.parse(line);
      if (event === "request") requests.push({ workspaceId, route, status });
    },
  }),
);
const built = (await buildClient(runtime.url.origin)) as BuiltClient;
afterAll(() => built?.remove());

beforeEach((t) => {
  if (!built) t.skip("the package registry cannot be reached");
});

/** A workspace, its key, and a client with that key. */
async function openWorkspace(requestsPerWindow = 1_000, maxWaitSeconds?: number) {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const apiKey = String((await PLATFORM.createApiKey({ workspaceId, requestsPerWindow })).apiKey);
  const client = new built.main.Client({ url: runtime.url.origin, apiKey, maxWaitSeconds });
  return { workspaceId, apiKey, client };
}

/** Records `count` records, a hundred per call; returns their ids. */
async function recordMany(
  count: number,
  record: (references: string[]) => Promise<{ ids: Iterable<unknown> }>,
): Promise<string[]> {
  const ids: string[] = [];
  while (ids.length < count) {
    const { length } = ids;
    const size = Math.min(100, count - length);
    const references = Array.from({ length: size }, (_, i) => `reference-${length + i}`);
    ids.push(...[...(await record(references)).ids].map(String));
  }
  return ids;
}

function recordLeads(workspaceId: string, count: number): Promise<string[]> {
  const rest = { source: "crm", agent: AGENT } as const;
  return recordMany(count, (references) => {
    const leads = references.map((reference) => ({ reference, ...rest }));
    return runtime.env.PLATFORM.recordLeads({ workspaceId, leads });
  });
}

function recordAutomations(
  workspaceId: string,
  count: number,
  status = "active" as "active" | "draft",
) {
  const rest = { type: "lead_ads", provider: "facebook", agent: AGENT, status } as const;
  return recordMany(count, (references) => {
    const automations = references.map((reference) => ({ reference, ...rest }));
    return runtime.env.PLATFORM.recordAutomations({ workspaceId, automations });
  });
}

function recordRuns(workspaceId: string, automationId: string, count: number) {
  const rest = { automationId, status: "success", triggerType: "lead_ads" } as const;
  return recordMany(count, (references) => {
    const runs = references.map((reference) => ({ reference, ...rest }));
    return runtime.env.PLATFORM.recordRuns({ workspaceId, runs });
  });
}

async function idsOf(items: AsyncIterable<{ id: string }>): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of items) ids.push(id);
  return ids;
}

/** The statuses of `count` requests on a route: their log may come after the responses. */
async function statusesOf(workspaceId: string, route: string, count: number): Promise<number[]> {
  const logged = () =>
    requests.filter((one) => one.workspaceId === workspaceId && one.route === route);
  await until(() => logged().length >= count, 5_000).catch(() => {});
  return logged().map(({ status }) => status);
}

describe("the example client", () => {
  test("prints every lead, and waits when its quota is used up", { timeout: 120_000 }, async () => {
    const { workspaceId, apiKey } = await openWorkspace(1);
    const recorded = await recordLeads(workspaceId, 250);
    const settings = { API_URL: runtime.url.origin, API_KEY: apiKey };
    const output = await runNpm(built.folder, ["start", "--silent"], settings);
    const printed = output
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line).id);
    expect(printed).toHaveLength(250);
    expect(printed.toSorted()).toEqual(recorded.toSorted());
    // A client that did not wait as long as it was told would be refused more often.
    expect(await statusesOf(workspaceId, "/v1/leads", 5)).toEqual([200, 429, 200, 429, 200]);
  });

  test.each([
    ["no address", { API_URL: "", API_KEY: "" }, "Set API_URL and API_KEY."],
    ["no key", { API_KEY: "" }, "Set API_KEY."],
    ["an invalid address", { API_URL: "localhost" }, "API_URL is not a URL: localhost"],
    [
      "a wrong key",
      { API_KEY: "key_live_1" },
      "URL does not accept API_KEY (401 invalid_api_key): is the key complete, and is it for this service?",
    ],
    [
      "no server",
      { API_URL: "http://localhost:2" },
      "URL does not answer (ECONNREFUSED): is API_URL correct, and is the service running?",
    ],
  ])("ends with one sentence, at %s", async (_, differences, sentence) => {
    const { apiKey } = await openWorkspace();
    const settings = { API_URL: runtime.url.origin, API_KEY: apiKey, PORT: "0", ...differences };
    for (const file of ["dist/leads.js", "dist/events.js"]) {
      const child = spawn(process.execPath, [file], {
        cwd: built.folder,
        env: { ...process.env, ...settings },
      });
      const [stdout, stderr, [code]] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        once(child, "close"),
      ]);
      expect(stderr).toBe(`${sentence.replace("URL does", `${settings.API_URL} does`)}\n`);
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    }
  });

  test("ends quietly when its reader has enough", async () => {
    const { workspaceId, apiKey } = await openWorkspace();
    await recordLeads(workspaceId, 250);
    const child = spawn("sh", ["-c", `"${process.execPath}" dist/leads.js | head -n 1`], {
      cwd: built.folder,
      env: { ...process.env, API_URL: runtime.url.origin, API_KEY: apiKey },
    });
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
    expect(stdout).toMatch(/^\{"id":"lea_[^\n]+\n$/);
    expect(stderr).toBe("");
  });

  test("fetches every page of automations and runs, but only those that are reached", async () => {
    const { workspaceId, client } = await openWorkspace();
    const automations = await recordAutomations(workspaceId, 120);
    expect((await idsOf(client.listAutomations())).toSorted()).toEqual(automations.toSorted());
    const [automationId = "", other] = automations;
    const runs = await recordRuns(workspaceId, automationId, 120);
    expect((await idsOf(client.listRuns())).toSorted()).toEqual(runs.toSorted());
    expect((await idsOf(client.listRunsOf(automationId))).toSorted()).toEqual(runs.toSorted());
    expect(await idsOf(client.listRunsOf(other))).toEqual([]);
    for await (const _ of client.listRuns()) break;
    expect(await statusesOf(workspaceId, "/v1/runs", 3)).toEqual([200, 200, 200]);
  });
});

/** The error that a promise is rejected with. */
function refusalOf(promise: Promise<unknown>) {
  return promise.then(
    () => expect.unreachable("it was to be refused"),
    (error) => error,
  );
}

describe("a call that is refused", () => {
  const REQUEST_ID = expect.stringMatching(/^[0-9a-f-]{36}/);

  test("throws an ApiError with status, code, details and request id", async () => {
    const { workspaceId, client } = await openWorkspace();
    const [draft] = await recordAutomations(workspaceId, 1, "draft");
    const creation = { url: "http://localhost:1", events: ["lead.deleted"] };
    const stranger = new built.main.Client({ url: runtime.url.origin, apiKey: "none" });
    for (const [call, status, code, details] of [
      [() => client.getAutomation("aut_unknown"), 404, "automation_not_found", {}],
      [() => client.deleteSubscription("whk_unknown"), 404, "webhook_not_found", {}],
      [() => client.pauseAutomation(draft), 422, "automation_not_controllable", {}],
      [
        () => client.createSubscription(creation),
        400,
        "invalid_request",
        { parameter: "events.0" },
      ],
      [() => idsOf(stranger.listLeads()), 401, "invalid_api_key", {}],
    ] as const) {
      const error = await refusalOf(call());
      expect(error).toBeInstanceOf(built.main.ApiError);
      expect(error).toMatchObject({ status, code, details, requestId: REQUEST_ID });
      expect(error.message).toContain(code);
    }
  });

  test("by an intermediary has a status and no code", async () => {
    const { url, close } = await startReceiver(() => 502);
    const error = await refusalOf(
      new built.main.Client({ url, apiKey: "none" }).getAutomation("aut_1"),
    );
    await close();
    expect(error).toBeInstanceOf(built.main.ApiError);
    expect(error).toMatchObject({ status: 502, code: null, details: {}, requestId: null });
  });

  test("for its quota is sent again after Retry-After, even a PATCH", async () => {
    const { workspaceId, client } = await openWorkspace(1);
    const [id] = await recordAutomations(workspaceId, 1);
    await client.getAutomation(id);
    expect(await client.pauseAutomation(id)).toMatchObject({ status: "paused" });
    expect(await statusesOf(workspaceId, "/v1/automations/:id", 3)).toEqual([200, 429, 200]);
  });

  test("for its quota waits no longer in total than it may", async () => {
    const busy = await startReceiver(() => ({ status: 429, headers: { "Retry-After": "1" } }));
    const client = new built.main.Client({ url: busy.url, apiKey: "none", maxWaitSeconds: 2 });
    expect(await refusalOf(client.getAutomation("aut_1"))).toMatchObject({ status: 429 });
    await busy.close();
    const [first = 0, second = 0, third = 0, ...others] = busy.posts.map(({ at }) => at);
    expect(others).toEqual([]);
    for (const wait of [second - first, third - second]) expect(wait).toBeGreaterThanOrEqual(990);
  });

  test("for its quota stops waiting when its signal is aborted, with the signal's reason", async () => {
    const busy = await startReceiver(() => ({ status: 429, headers: { "Retry-After": "60" } }));
    const client = new built.main.Client({ url: busy.url, apiKey: "none" });
    const signal = AbortSignal.timeout(1_000);
    const start = Date.now();
    const error = await refusalOf(client.getAutomation("aut_1", { signal }));
    expect(Date.now() - start).toBeLessThan(20_000);
    await busy.close();
    expect(error).toBe(signal.reason);
    expect(busy.posts).toHaveLength(1);
  });
});
