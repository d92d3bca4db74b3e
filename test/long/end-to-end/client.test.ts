import { randomUUID } from "node:crypto";
import { readFileSync, statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { mintSecret, signatureHeaders } from "../../../src/endpoints/signature.ts";
import { openClient } from "../../node/support/client.ts";
import { opened } from "../../node/support/opened.ts";
import { type Program, runProgram } from "../../node/support/process.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { freePort, proxyTo } from "../../node/support/server.ts";
import { numbered } from "../../node/support/workspace.ts";
import { checkHere, SECRET } from "../../support/checker.ts";
import { until } from "../../support/until.ts";

/** The requests, as logged by the service. */
const requests: { workspaceId: string; route: string; status: number }[] = [];

const { runtime, built, open, start } = await openClient({
  vars: { QUOTA_WINDOW_SECONDS: 3 },
  onLog: (line) => {
    // The runtime itself also prints lines.
    const { event, ...request } = line.startsWith("{") ? JSON.parse(line) : {};
    if (event === "request") requests.push(request);
  },
});
const API_URL = runtime.url.origin;

async function idsOf(items: AsyncIterable<{ id: string }>): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of items) ids.push(id);
  return ids;
}

/** The statuses of requests on a route up to the last of `count` that succeed: their log may come later. */
async function statusesOf(workspaceId: string, route: string, count: number): Promise<string> {
  const logged = () =>
    requests
      .filter((one) => one.workspaceId === workspaceId && one.route === route)
      .map(({ status }) => status);
  await until(() => logged().filter((status) => status === 200).length === count);
  return logged().join();
}

describe("the example client", () => {
  test("prints every lead, and waits when its quota is used up", { timeout: 120_000 }, async () => {
    const { workspaceId, apiKey, recordLeads } = await open(1);
    const recorded = await recordLeads(numbered(250));
    const { scripts } = JSON.parse(readFileSync(join(built.folder, "package.json"), "utf8"));
    // The client is compiled already.
    expect(scripts.start).toBe(`${scripts.build} && node dist/leads.js`);
    const { stdout } = await start("leads", { API_KEY: apiKey }).ended;
    const lines = stdout.trim().split("\n");
    expect(lines).toHaveLength(250);
    expect(lines.map((line) => JSON.parse(line).id).toSorted()).toEqual(recorded.toSorted());
    // A client that did not wait as long as it was told would be refused more often; one that a busy machine
    // delays until the next window is not refused.
    expect(await statusesOf(workspaceId, "/v1/leads", 3)).toMatch(/^200,(429,)?200,(429,)?200$/);
  });

  test.each([
    [{ API_URL: "", API_KEY: "" }, "Set API_URL and API_KEY."],
    [{ API_KEY: "" }, "Set API_KEY."],
    [{ API_URL: "localhost" }, "API_URL is not a URL: localhost"],
    [
      { API_KEY: "key_live_1" },
      `${API_URL} does not accept API_KEY (401 invalid_api_key): is the key complete, and is it for this service?`,
    ],
    [
      { API_URL: "http://localhost:2" },
      "http://localhost:2 does not respond (ECONNREFUSED): is API_URL correct, and is the service running?",
    ],
  ])("with %j ends with one sentence", async (differences, sentence) => {
    const { apiKey } = await open();
    const settings = { API_KEY: apiKey, PORT: "0", ...differences };
    const end = { code: 1, stdout: "", stderr: `${sentence}\n` };
    for (const file of ["leads", "events"])
      expect(await start(file, settings).ended, file).toEqual(end);
  });

  test("ends quietly when its reader has enough", async () => {
    const { apiKey, recordLeads } = await open();
    await recordLeads(numbered(250));
    const line = `"${process.execPath}" dist/leads.js | head -n 1`;
    const env = { ...process.env, API_URL, API_KEY: apiKey };
    const end = await runProgram(["sh", "-c", line], { cwd: built.folder, env });
    expect(end).toMatchObject({
      stdout: expect.stringMatching(/^\{"id":"lea_[^\n]+\n$/),
      stderr: "",
    });
  });

  test("fetches every page of automations and runs, but only those that are reached", async () => {
    const { workspaceId, client, recordAutomations, recordRuns } = await open();
    const automations = await recordAutomations(numbered(120));
    expect((await idsOf(client.listAutomations())).toSorted()).toEqual(automations.toSorted());
    const [automationId = "", other] = automations;
    const runs = await recordRuns(automationId, numbered(120));
    expect((await idsOf(client.listRuns())).toSorted()).toEqual(runs.toSorted());
    expect((await idsOf(client.listRunsOf(automationId))).toSorted()).toEqual(runs.toSorted());
    expect(await idsOf(client.listRunsOf(other))).toEqual([]);
    for await (const _ of client.listRuns()) break;
    expect(await statusesOf(workspaceId, "/v1/runs", 3)).toBe("200,200,200");
  });
});

/** The error that a promise is rejected with. */
const refusalOf = (promise: Promise<unknown>) =>
  promise.then(
    () => expect.unreachable("it was to be refused"),
    (error) => error,
  );

describe("a call that is rejected", () => {
  /** A client of a server that answers each request in the same way. */
  async function openRefusing(
    answer: Parameters<typeof startReceiver>[0],
    maxWaitSeconds?: number,
  ) {
    const server = await startReceiver(answer);
    const client = new built.main.Client({ url: server.url, apiKey: "none", maxWaitSeconds });
    return { ...server, client };
  }

  test("throws an ApiError with status, code, details and request id", async () => {
    const { client, recordAutomations } = await open();
    const [draft] = await recordAutomations(["1"], "draft");
    const wrong = { url: "http://localhost:1", events: ["lead.invented"] };
    const stranger = new built.main.Client({ url: API_URL, apiKey: "none" });
    for (const [call, status, code, details] of [
      [() => client.getAutomation("aut_unknown"), 404, "automation_not_found", {}],
      [() => client.deleteSubscription("whk_unknown"), 404, "webhook_not_found", {}],
      [
        () => client.pauseAutomation(draft),
        422,
        "automation_not_controllable",
        { status: "draft" },
      ],
      [() => client.createSubscription(wrong), 400, "invalid_request", { parameter: "events.0" }],
      [() => idsOf(stranger.listLeads()), 401, "invalid_api_key", {}],
    ] as const) {
      const error = await refusalOf(call());
      const requestId = expect.stringMatching(/^[0-9a-f-]{36}/);
      expect(error).toBeInstanceOf(built.main.ApiError);
      expect(error).toMatchObject({ status, code, details, requestId });
      expect(error.message).toContain(code);
    }
    // By an intermediary.
    const broken = await openRefusing(() => 502);
    const error = await refusalOf(broken.client.getAutomation("aut_1"));
    await broken.close();
    expect(error).toBeInstanceOf(built.main.ApiError);
    expect(error).toMatchObject({ status: 502, code: null, details: {}, requestId: null });
  });

  test("for its quota is sent again after Retry-After, even a PATCH", async () => {
    const { workspaceId, client, recordAutomations } = await open(1);
    const [id] = await recordAutomations(["1"]);
    await client.getAutomation(id);
    expect(await client.pauseAutomation(id)).toMatchObject({ status: "paused" });
    expect(await statusesOf(workspaceId, "/v1/automations/:id", 2)).toMatch(/^200,(429,)?200$/);
  });

  const busy = (seconds: string) => () => ({ status: 429, headers: { "Retry-After": seconds } });

  test("for its quota waits no longer in total than it may", async () => {
    const { client, posts, close } = await openRefusing(busy("1"), 2);
    expect(await refusalOf(client.getAutomation("aut_1"))).toMatchObject({ status: 429 });
    await close();
    const [first = 0, second = 0, third = 0, ...others] = posts.map(({ at }) => at);
    expect(others).toEqual([]);
    for (const wait of [second - first, third - second]) expect(wait).toBeGreaterThanOrEqual(990);
  });

  test("with a 500 that will pass is sent again, unless it creates something", async () => {
    const failing = () => ({ status: 500, headers: { "Retry-After": "1" } });
    const { client, posts, close } = await openRefusing(failing, 1);
    expect(await refusalOf(client.deleteSubscription("whk_1"))).toMatchObject({ status: 500 });
    expect(posts).toHaveLength(2);
    await refusalOf(client.createSubscription({ url: "https://hooks.example.com", events: [] }));
    await close();
    expect(posts).toHaveLength(3);
  });

  test("for its quota stops waiting when its signal is aborted, with the signal's reason", async () => {
    const { client, posts, close } = await openRefusing(busy("60"));
    const ending = new AbortController();
    const { signal } = ending;
    const refused = refusalOf(client.getAutomation("aut_1", { signal }));
    await until(() => posts.length === 1);
    await setTimeout(500);
    ending.abort();
    expect(await refused).toBe(signal.reason);
    await close();
    expect(posts).toHaveLength(1);
  });

  test("because no response comes within 30 s is not sent again", async () => {
    let pass = () => {};
    const timeout = vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) => {
      const timer = new AbortController();
      if (ms === 30_000) pass = () => timer.abort(new DOMException("", "TimeoutError"));
      return timer.signal;
    });
    onTestFinished(() => timeout.mockRestore());
    const { client, posts, close } = await openRefusing(() => new Promise<never>(() => {}));
    const refused = refusalOf(client.getAutomation("aut_1"));
    await until(() => posts.length === 1);
    pass();
    expect(await refused).toMatchObject({ name: "TimeoutError" });
    await close();
    expect(posts).toHaveLength(1);
  });
});

test("createSubscription with the same idempotencyKey returns the same subscription", async () => {
  const { client } = await open();
  const wanted = { url: "https://hooks.example.com/automations", events: ["lead.created"] };
  const options = { idempotencyKey: randomUUID() };
  const first = await client.createSubscription(wanted, options);
  expect(await client.createSubscription(wanted, options)).toEqual(first);
  expect((await client.createSubscription(wanted)).id).not.toBe(first.id);
});

test("verifyDelivery passes every check of the checker", async () => {
  const verify = (header: unknown, body: Buffer) =>
    built.webhooks.verifyDelivery(body, header, SECRET);
  const seen: unknown[] = [];
  const receiver = await startReceiver(({ headers, body }) => {
    try {
      seen.push(verify(headers["x-service-signature"], body));
      return 204;
    } catch (error) {
      return (error as Error).name === "SignatureError" ? 401 : 500;
    }
  });
  const findings = await checkHere(receiver.url);
  await receiver.close();
  expect(findings).toHaveLength(10);
  expect(findings.filter(({ result }) => result !== "passed")).toEqual([]);
  expect(seen[0]).toHaveProperty("id");

  const body = Buffer.from("{}");
  const signAt = async (minutes: number) => {
    const headers = await signatureHeaders(SECRET, "evt_1", "{}", Date.now() + minutes * 60_000);
    return String(headers["X-Service-Signature"]);
  };
  for (const minutes of [-4, 4]) expect(verify(await signAt(minutes), body)).toEqual({});
  const ahead = await signAt(6);
  const disguised = ["t=1,t=$1", "t=$1,t=1", "t=$1e-6", "t= $1", "t=-$1"].map((by) =>
    ahead.replace(/^t=(\d+)/, by),
  );
  const garbage = [undefined, null, "", "t=,v1=", "t=1", "v1=1", "t=abc,v1=é", "t=1e3", ["t=1"]];
  const refusal = expect.objectContaining({ name: "SignatureError" });
  for (const header of [...disguised, ...garbage])
    expect(() => verify(header, body), String(header)).toThrow(refusal);
});

test("npm run events prints each event as it arrives", async () => {
  const { PLATFORM } = runtime.env;
  const { workspaceId, apiKey, client, ...workspace } = await open();
  const [automationId = ""] = await workspace.recordAutomations(["1"]);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const early: number[] = [];
  const proxy = await proxyTo(runtime.url, async ({ method }) => {
    if (method === "POST") early.push((await fetch(url, { method: "POST", body: "{}" })).status);
    if (method !== "DELETE") return;
    // Ctrl-C sends one from the terminal, and another through npm.
    child.kill("SIGINT");
    await setTimeout(50);
  });
  const settings = { API_URL: proxy.url, API_KEY: apiKey, PORT: String(port) };
  const { child, ended } = start("events", settings);
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  try {
    await until(() => lines.length > 0);
    expect(lines).toEqual([`Listening for events at ${url}. Ctrl-C unsubscribes.`]);
    // What arrives before the secret is sent again.
    expect(early).toEqual([503]);
    await client.pauseAutomation(automationId);
    await workspace.recordLeads(["1"], () => ({ source: "widget", name: "Zoë “€” 🌻" }));
    await workspace.recordRuns(automationId, ["1"], "partial");
    await until(() => lines.length > 3);
    const told = lines.slice(1);
    expect(told.map((line) => line.replace(/evt_\w+/, "evt_…")).toSorted()).toEqual([
      "automation.status_changed evt_… Réponse aux formulaires publicitaires – Agence Lumière Lyon is paused",
      "lead.created evt_… Zoë “€” 🌻 (widget)",
      "run.completed evt_… lead_ads: partial",
    ]);

    const body = JSON.stringify({ id: "evt_1", type: "lead.created", data: {} });
    const headers = await signatureHeaders(mintSecret(), "evt_1", body, Date.now());
    expect((await fetch(url, { method: "POST", headers, body })).status).toBe(401);
    expect(lines).toHaveLength(4);
    // It prints an event before its answer is noted, and what is not noted ends with the subscription.
    await until(async () => (await PLATFORM.ledger({ workspaceId })).delivered === 3);

    child.kill("SIGTERM");
    expect((await ended).code).toBe(0);
  } finally {
    if (child.exitCode === null) child.kill("SIGKILL");
    await proxy.close();
  }
  expect(await idsOf(client.listSubscriptions())).toEqual([]);
});

test("npm run events reports a test event, and does not process it", async () => {
  const { apiKey, client } = await open();
  const { child, ended, output } = start("events", {
    API_KEY: apiKey,
    PORT: String(await freePort()),
  });
  try {
    await until(() => output().includes("Listening"));
    const [webhookId = ""] = await idsOf(client.listSubscriptions());
    await runtime.env.PLATFORM.sendTestEvent({ webhookId, type: "lead.created" });
    await until(() => output().split("\n").length > 2);
    child.kill("SIGTERM");
    expect(
      (await ended).stdout
        .replace(/evt_\w+/, "evt_…")
        .trim()
        .split("\n"),
    ).toEqual([
      expect.stringContaining("Listening"),
      "A test event has arrived: lead.created evt_…",
    ]);
  } finally {
    if (child.exitCode === null) child.kill("SIGKILL");
  }
});

type Stored = Record<"automations" | "leads" | "runs", { id: string; status?: string }[]>;

describe("npm run sync", async () => {
  /** Called before a page of leads is passed on, with 1 for the first page of a walk; may refuse it. */
  let beforePage: (page: number) => Promise<void> = async () => {};
  let page = 0;
  /** Tells of pages of leads. */
  const proxy = await opened(
    proxyTo(runtime.url, async ({ url = "" }) => {
      const { pathname, searchParams } = new URL(url, runtime.url);
      if (pathname !== "/v1/leads") return;
      page = searchParams.get("cursor") ? page + 1 : 1;
      await beforePage(page);
    }),
  );

  const now = Date.now();
  const workspace = built && (await open());
  const automationIds = built && (await workspace.recordAutomations(["1", "2", "3"]));
  let program: Program;

  beforeAll(async () => {
    // Three pages, a lead an hour.
    if (built) await recordLeads(numbered(250).map(Number));
  });
  afterAll(() => void program?.child.kill("SIGKILL"));

  /** Leads by their age in hours, which is also their reference. */
  const recordLeads = (ages: number[]) =>
    workspace.recordLeads(ages.map(String), (age) => ({
      createdAt: new Date(now - Number(age) * 3_600_000).toISOString(),
    }));

  /** Starts the program, and waits until it has said so. */
  async function startSync(said = "Walked: "): Promise<void> {
    const PORT = String(await freePort());
    program = start("sync", { API_URL: proxy.url, API_KEY: workspace.apiKey, PORT });
    await until(() => program.output().includes(said)).catch(() => {});
    expect(program.output()).toContain(said);
  }

  const file = () => join(built.folder, "copy.json");
  /** Dates the file back, as if the program had been stopped for longer than a list may lag. */
  const ageFile = () => utimesSync(file(), new Date(now - 120_000), new Date(now - 120_000));
  const stored = (): Stored => JSON.parse(readFileSync(file(), "utf8"));
  const leadIds = () => stored().leads.map(({ id }) => id);
  const statusOf = (id: string) => stored().automations.find((one) => one.id === id)?.status;

  /** Everything that the service lists. */
  async function listed(): Promise<Stored> {
    const all = async (items: AsyncIterable<{ id: string }>) => {
      const found = [];
      for await (const item of items) found.push(item);
      return found;
    };
    const { client } = workspace;
    return {
      automations: await all(client.listAutomations()),
      leads: await all(client.listLeads()),
      runs: await all(client.listRuns()),
    };
  }

  const sorted = (copy: Stored) =>
    Object.values(copy).map((records) => records.toSorted((a, b) => (a.id < b.id ? -1 : 1)));

  test("has everything after its first walk, though the pages move in the meantime", async () => {
    const added: string[] = [];
    let isFirst = true;
    beforePage = async (page) => {
      if (page !== 2 || !isFirst) return;
      isFirst = false;
      // Above all pages, in the page that was read, and in one to come.
      added.push(...(await recordLeads([0, 30.5, 200.5])));
      // It was read before the leads.
      await workspace.recordRuns(String(automationIds[0]), ["1"]);
      await workspace.client.pauseAutomation(automationIds[1]);
    };
    await startSync();
    await until(() => leadIds().length === 253 && statusOf(String(automationIds[1])) === "paused");
    expect(added).toHaveLength(3);
    for (const id of added) expect(leadIds()).toContain(id);
    expect(sorted(stored())).toEqual(sorted(await listed()));
    expect(program.output().match(/Walked/g)).toHaveLength(1);
    expect(statSync(file()).mode & 0o777).toBe(0o600);
  });

  test("gets a back-dated record, which the newest pages do not show", async () => {
    const [id] = await recordLeads([249.5]);
    const newest = async (query: string) => {
      const path = `/v1/leads?${query}`;
      const { data } = await workspace.api<{ data: { id: string }[] }>("GET", path);
      return data.map((lead) => lead.id);
    };
    const since = new Date(now).toISOString();
    expect(await newest("limit=100")).not.toContain(id);
    // There is no such filter.
    expect(await newest(`limit=100&since=${since}`)).toEqual(await newest("limit=100"));
    await until(() => leadIds().includes(String(id)));
    expect(sorted(stored())).toEqual(sorted(await listed()));
  });

  test("keeps the later state of an automation when an earlier one arrives late", async () => {
    const { PLATFORM } = runtime.env;
    const id = String(automationIds[1]);
    const { workspaceId } = workspace;
    await workspace.client.activateAutomation(id);
    await until(() => statusOf(id) === "active");
    const [webhook] = (await PLATFORM.listWebhooks({ workspaceId })).items;
    const webhookId = String(webhook?.webhookId);
    const type = "automation.status_changed" as const;
    const { items } = await PLATFORM.listDeliveries({ webhookId, type });
    const paused = String([...items].at(-1)?.eventId);
    const before = statSync(file()).mtimeMs;
    await PLATFORM.redeliver({ webhookId, eventIds: [paused] });
    await until(() => statSync(file()).mtimeMs > before);
    expect(statusOf(id)).toBe("active");
  });

  test("notices at the next walk what has been removed, and ends without a subscription", async () => {
    program.child.kill("SIGINT");
    expect((await program.ended).code).toBe(0);
    const { PLATFORM } = runtime.env;
    const { workspaceId } = workspace;
    expect([...(await PLATFORM.listWebhooks({ workspaceId })).items]).toEqual([]);
    // While it does not run: one record of each kind is gone, and a lead is new.
    const [gone] = leadIds();
    await PLATFORM.eraseLeads({ workspaceId, ids: [String(gone)] });
    await PLATFORM.removeAutomations({ workspaceId, ids: [String(automationIds[0])] });
    const [added] = await recordLeads([100.5]);
    expect(leadIds()).toContain(gone);
    ageFile();
    await startSync();
    expect(leadIds()).not.toContain(gone);
    expect(leadIds()).toContain(added);
    expect(program.output()).toMatch(
      /automations 2 \(0 new, 1 gone\), leads 254 \(1 new, 1 gone\)/,
    );
    expect(sorted(stored())).toEqual(sorted(await listed()));
  });

  test("removes nothing after a walk that did not reach the end", async () => {
    program.child.kill("SIGINT");
    await program.ended;
    const before = leadIds();
    ageFile();
    beforePage = async (page) => {
      if (page === 2) throw new Error("refused");
    };
    await startSync("trying again in 60 s.");
    expect(program.output()).not.toContain("Walked");
    expect(leadIds()).toEqual(before);
  });
});
