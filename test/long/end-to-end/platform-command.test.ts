import { readFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { join } from "node:path";
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { describeMethod, describeMethods } from "../../../scripts/platform/help.ts";
import { callUntilDone } from "../../../scripts/platform/long-calls.ts";
import { writeServer } from "../../../scripts/shared/local-state.ts";
import type { PlatformClient } from "../../../scripts/shared/platform-client.ts";
import { toTable } from "../../../scripts/shared/table.ts";
import type { Operation } from "../../../src/platform/operation.ts";
import { OPERATIONS } from "../../../src/platform/operations.ts";
import { serverFileIn } from "../../node/support/local-runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { openPlatformCommand, refusalOf } from "../../node/support/platform-command.ts";
import { runProgram } from "../../node/support/process.ts";
import { serve } from "../../node/support/server.ts";
import { numbered, openWorkspace } from "../../node/support/workspace.ts";

const command = await opened(openPlatformCommand());
const { runtime, folder, platform, platformHere, platformIn, inTerminal } = command;
const isLinux = process.platform === "linux";

describe("npm run platform", () => {
  test.runIf(isLinux)(
    "prints a table in a terminal, unless JSON is requested, and escapes in both what it would obey",
    async () => {
      const name = "\u001b]52;c;cHduZWQ=\u0007\u009b2J\u202ereversed\nevt_1  delivered";
      const { workspaceId, recordLeads } = await openWorkspace(runtime);
      await recordLeads(["1"], () => ({ name }));
      const input = JSON.stringify({ workspaceId, reference: "1" });
      const shownWith = async (option = "") => {
        const { stdout } = await inTerminal(`platform/platform.ts findLeads '${input}' ${option}`);
        // The progress is shown over itself.
        const shown = stdout.replaceAll("\r\u001b[K", "");
        expect(shown).not.toMatch(/(?![\r\n])[\p{Cc}\p{Bidi_Control}]/u);
        return shown;
      };
      expect(await shownWith()).toContain(
        "cHduZWQ=\\u0007\\u009b2J\\u202ereversed\\nevt_1  delivered",
      );
      const json = await shownWith("--json");
      expect(JSON.parse(json.slice(json.indexOf("{"))).items[0]).toMatchObject({ name });
    },
  );

  test("says in one sentence that the local server is not running", async () => {
    const missing = { LOCAL_SERVER_FILE: join(folder, "none.json") };
    const stderr = "The local server is not running: start it with `npm start`.\n";
    expect(await platformIn(missing, "ledger")).toEqual({ code: 1, stdout: "", stderr });
  });

  test("says in one sentence that there is no login", async () => {
    const missing = { HOME: folder, XDG_CONFIG_HOME: folder, CLOUDFLARE_API_TOKEN: "" };
    for (const [name, value] of Object.entries(missing)) vi.stubEnv(name, value);
    onTestFinished(() => void vi.unstubAllEnvs());
    expect(await refusalOf("ledger", "--remote")).toBe(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.",
    );
  });

  test("says that there is no such workspace", async () => {
    const end = await platformHere("ledger", '{ "workspaceId": "wks_unknown" }');
    expect(end).toEqual({
      code: 1,
      stdout: "",
      stderr: "ledger: workspaceId: no such workspace\n",
    });
  });

  test.each<[string[], sentence: string]>([
    [["createUser"], "createUser: no such method. npm run platform -- --help lists them."],
    [["ledger", "{workspaceId}"], "the input is not JSON: "],
    [
      ["recordLeads", '{ "workspaceId": "wks_1", "leads": [{ "reference": "" }] }'],
      "recordLeads: leads[0].source, leads[0].agent are missing; leads[0].reference: ",
    ],
    [["ledger", "{}", "{}"], "expected one method and one JSON text, in quotes"],
    [
      ["ledger", "--ndjson"],
      "--ndjson is for exportWorkspace, listAuditTrail, listWorkspaces and methods that record, not for ledger",
    ],
  ])("calls nothing if %j is wrong: %s", async (args, sentence) => {
    const said = await refusalOf(...args);
    expect(said.slice(0, sentence.length)).toBe(sentence);
    // The sentence, and perhaps an example.
    expect(said.replace(/\n\n {2}npm run platform -- .*$/, "").split("\n")).toHaveLength(1);
  });

  test("revokes a leaked key by its text, which it does not print, and notes who did", async () => {
    const { workspaceId, keyId, apiKey } = await openWorkspace(runtime);
    const revoked = await platformHere(
      "revokeApiKey",
      JSON.stringify({ apiKey }),
      "--actor",
      "Ada",
    );
    expect(JSON.parse(revoked.stdout)).toEqual({ keyId, workspaceId, webhookIds: [] });
    const { items } = await runtime.env.PLATFORM.listAuditTrail({ workspaceId });
    expect(items[0]).toMatchObject({ method: "revokeApiKey", ids: [keyId], actor: "Ada" });
    expect(revoked.stdout + revoked.stderr).not.toContain(apiKey);
  });

  test("the help lists every method with its sentence and inputs", async () => {
    const { stdout } = await platformHere();
    for (const [name, { about: sentence, input }] of Object.entries(OPERATIONS)) {
      const [, about = ""] = stdout.split(`\n${name}\n`);
      expect(about.startsWith(`  ${sentence}\n`)).toBe(true);
      const [lines = ""] = about.split("\n\n");
      for (const field of Object.keys(input.shape))
        expect(lines).toMatch(new RegExp(`^ {2}${field}\\??  +\\S`, "m"));
    }
  });

  test.each([
    ["updateApiKey", "requestsPerWindow", "integer, 1 to 1000000, or null"],
    ["listDeliveries", "status?", "integer, 100 to 599 | 1xx |"],
  ] as const)("the help of %s says that %s may be %s", (method, field, values) => {
    const help = describeMethod(method, OPERATIONS[method]);
    expect(help.replace(/ +/g, " ")).toContain(` ${field} ${values}`);
  });

  test("METHOD --help shows one method, with types, meanings and examples", async () => {
    const { stdout } = await platformHere("createApiKey", "--help");
    expect(stdout).toContain(`\n\n${OPERATIONS.createApiKey.about}\n\n`);
    expect(stdout).toMatch(/^ {2}workspaceId +id +wks_…$/m);
    expect(stdout).toMatch(
      /^ {2}requestsPerWindow\? +integer, 1 to 1000000 +the key's own rate limit/m,
    );
    expect(stdout).toContain(
      `npm run platform -- createApiKey '{ "workspaceId": "wks_…", "name": "CRM import" }'`,
    );
    expect(stdout).not.toContain("recordLeads");
    // Those that record take a file of lines.
    expect(describeMethods()).toMatch(
      /^npm run platform -- METHOD INPUT \[--ndjson\] \[--workspace ID\] /,
    );
    for (const [method, operation] of Object.entries<Operation>(OPERATIONS)) {
      const help = describeMethod(method, operation);
      expect(help).toContain("a file that contains it, or - for standard input");
      for (const call of [
        ".ndjson --ndjson --workspace wks_…\n",
        `${method} - --ndjson --workspace wks_…`,
      ])
        expect(help.includes(call), method).toBe(method.startsWith("record"));
    }
    for (const method of ["exportWorkspace", "listAuditTrail", "listWorkspaces"] as const)
      expect(describeMethod(method, OPERATIONS[method])).toMatch(
        /npm run -s platform .* --ndjson > /,
      );
  });
});

const GONE = "The local server is not running: start it with `npm start`.";
test.each<[string, RequestListener, sentence: string]>([
  [
    "does not respond",
    () => {},
    "The local server does not respond: stop it, and start it again with `npm start`.",
  ],
  ["hangs up", ({ socket }) => socket.destroy(), GONE],
  [
    "does not know the key",
    (_, response) => response.writeHead(401).end('{ "error": { "code": "invalid_api_key" } }'),
    GONE,
  ],
  ["is another program", (_, response) => response.writeHead(404).end("Not found"), GONE],
  [
    "fails",
    (_, response) => response.writeHead(500).end("{}"),
    "ledger: the local server failed: see .wrangler/start.log",
  ],
])("npm run platform gives up on a server that %s", async (_, listener, sentence) => {
  const server = await serve(listener);
  const file = join(command.folder, "other.json");
  writeServer({ base: server.url, platformKey: "local:key" }, file);
  vi.stubEnv("LOCAL_SERVER_FILE", file);
  try {
    expect(await refusalOf("ledger")).toBe(sentence);
  } finally {
    vi.unstubAllEnvs();
    await server.close();
  }
});

test("npm run platform shows the server's own error for a call that is too large", async () => {
  vi.stubEnv("LOCAL_SERVER_FILE", serverFileIn(folder));
  const input = { webhookId: "whk_1", description: null, expected: { url: "x".repeat(2e6) } };
  try {
    expect(await refusalOf("updateWebhook", JSON.stringify(input))).toBe(
      'updateWebhook: the local server responded 413 invalid_request {"reason":"body_too_large","max":1644096}',
    );
  } finally {
    vi.unstubAllEnvs();
  }
});

test("an object is a table with a row per field", () => {
  const ledger = { created: 0, oldestPendingSeconds: null, addsUp: true };
  expect(toTable(ledger).split("\n")).toEqual([
    "created               0",
    "oldestPendingSeconds  none",
    "addsUp                yes",
  ]);
});

test("a list is a table with a row per item, and then where the next page begins", () => {
  const attempt = { at: "2026-11-01T00:00:00.000Z", status: null, outcome: "timed_out" };
  const items = [
    { id: "a", attempt, events: ["lead.created", "run.completed"], failures: 1_000 },
    { id: "bcd", attempt: null, events: ["lead.created"], failures: 0 },
  ];
  expect(toTable({ items, nextCursor: null }).split("\n")).toEqual([
    "id   attempt                                         events                       failures",
    "a    at 2026-11-01T00:00:00.000Z, outcome timed_out  lead.created, run.completed  1,000",
    "bcd  none                                            lead.created                 0",
  ]);
  expect(toTable({ items: [], nextCursor: null })).toBe("No items.");
  // Items of several kinds are shown as JSON.
  expect(toTable({ items: [{ a: 1 }, { b: 2 }], nextCursor: "x" })).toBe(
    '{"a":1}\n{"b":2}\n\nnextCursor  x',
  );
});

describe("exportWorkspace --ndjson", () => {
  let workspaceId: string;
  let ids: string[];
  beforeAll(async () => {
    const workspace = await openWorkspace(runtime);
    workspaceId = workspace.workspaceId;
    const customFields = { lines: "a\nb\u2028c", controls: "\u001b]52;\u009b2J\u202e" };
    ids = await workspace.recordLeads(numbered(1_200), () => ({ customFields }));
  });
  const exported = (input: object) =>
    platform("exportWorkspace", JSON.stringify({ workspaceId, ...input }), "--ndjson");

  type Item = { kind: string; id: string };
  const itemsOf = (lines: string): Item[] =>
    JSON.parse(`[${lines.trimEnd().replaceAll("\n", ",")}]`);
  const leadsOf = (items: Item[]) =>
    items.filter(({ kind }) => kind === "lead").map(({ id }) => id);

  test("prints all pages from a cursor on, one item per line, and escapes what a terminal obeys", async () => {
    const first = await runtime.env.PLATFORM.exportWorkspace({ workspaceId });
    const before = leadsOf(JSON.parse(JSON.stringify(first.items)));
    const { code, stdout, stderr } = await exported({ cursor: String(first.nextCursor) });
    // A slow machine is shown the progress.
    expect(code, stderr).toBe(0);
    expect([...before, ...leadsOf(itemsOf(stdout))].toSorted()).toEqual(ids.toSorted());
    expect(stdout).toContain("\\u001b]52;\\u009b2J\\u202e");
    expect(stdout).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
  });

  test("ends without an error when its reader closes the pipe, as head does", async () => {
    const input = JSON.stringify({ workspaceId });
    const script = `"$0" scripts/platform/platform.ts exportWorkspace "$1" --ndjson | head -1; echo "\${PIPESTATUS[0]}"`;
    const env = { ...process.env, LOCAL_SERVER_FILE: serverFileIn(folder) };
    const end = await runProgram(["bash", "-c", script, process.execPath, input], { env });
    const [first = "", code] = end.stdout.split("\n");
    expect(JSON.parse(first)).toMatchObject({ kind: "workspace" });
    expect([code, end.stderr]).toEqual(["0", ""]);
  });

  test.runIf(isLinux)(
    "prints all items, and in a terminal its progress on standard error",
    async () => {
      const file = join(folder, "export.ndjson");
      const input = `'{"workspaceId":"${workspaceId}"}'`;
      const call = `platform/platform.ts exportWorkspace ${input} --ndjson > ${file}`;
      expect((await inTerminal(call)).stdout).toContain("1,202 items");
      const items = itemsOf(readFileSync(file, "utf8"));
      expect(items[0]).toMatchObject({ kind: "workspace", id: workspaceId });
      expect(leadsOf(items).toSorted()).toEqual(ids.toSorted());
    },
  );
});

describe("eraseWorkspace", () => {
  test("erases the whole workspace, and can be run again", async () => {
    const { workspaceId, recordLeads } = await openWorkspace(runtime);
    await recordLeads(numbered(10));
    for (const _ of ["first", "again"]) {
      const end = await platformHere("eraseWorkspace", JSON.stringify({ workspaceId }));
      expect([end.code, JSON.parse(end.stdout)]).toEqual([0, { done: true }]);
    }
    expect(await command.countLeads(workspaceId)).toBe(0);
  });

  test("is called until it is done", async () => {
    const answers = [false, false, true];
    const call = async () => ({ done: answers.shift() });
    const erased = await callUntilDone({ call } as unknown as PlatformClient, "eraseWorkspace", {
      workspaceId: "wks_1",
    });
    expect([erased, answers]).toEqual([{ done: true }, []]);
  });
});
