import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { describeMethod, describeMethods } from "../../../scripts/platform/help.ts";
import { eraseAll } from "../../../scripts/platform/long-calls.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { openApi } from "../../../scripts/shared/local-api.ts";
import type { PlatformClient } from "../../../scripts/shared/platform-client.ts";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { toTable } from "../../../scripts/shared/table.ts";
import { parseInput } from "../../../src/contract/parse.ts";
import type { Operation } from "../../../src/platform/operation.ts";
import { OPERATIONS } from "../../../src/platform/operations.ts";
import { opened } from "../../node/support/opened.ts";
import { openPlatformCommand } from "../../node/support/platform-command.ts";

const command = await opened(openPlatformCommand());
const { runtime, registry, run, platform, inTerminal, makeWorkspace, countLeads } = command;
const seed = (...args: string[]) => run([process.execPath, "scripts/seed.ts", ...args]);

describe("npm run platform", () => {
  test("prints a method's answer as JSON, for programs", async () => {
    const { code, stdout, stderr } = await platform("createWorkspace", '{ "name": "Agence" }');
    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toEqual({ workspaceId: expect.stringMatching(/^wks_/) });
    expect(code).toBe(0);
  });

  test.runIf(process.platform === "linux")(
    "prints a table in a terminal, unless JSON is requested",
    async () => {
      const { stdout } = await inTerminal("scripts/platform/platform.ts ledger");
      expect(stdout).toMatch(/^created {15}\d+\r$/m);
      expect(stdout).toMatch(/^oldestPendingSeconds {2}none\r$/m);
      expect(stdout).toMatch(/^addsUp {16}yes\r$/m);
      const asked = await inTerminal("scripts/platform/platform.ts ledger --json");
      expect(JSON.parse(asked.stdout)).toMatchObject({ addsUp: true });
    },
  );

  test.runIf(process.platform === "linux")(
    "prints a list in columns, one row per item",
    async () => {
      const workspaceId = await makeWorkspace();
      const input = JSON.stringify({ workspaceId });
      const show = async (method: string, text: string) =>
        (await inTerminal(`scripts/platform/platform.ts ${method} '${text}'`)).stdout.split("\r\n");
      expect(await show("listWebhooks", input)).toEqual(["No items.", ""]);
      const apiKey = String((await runtime.env.PLATFORM.createApiKey({ workspaceId })).apiKey);
      for (const path of ["one", "two"])
        await openApi(runtime.url.origin, apiKey)("POST", "/v1/webhooks", {
          url: `http://localhost:1/${path}`,
          events: ["lead.created", "run.completed"],
        });
      const [head, two, one, end] = await show("listWebhooks", input);
      expect(head).toMatch(/^webhookId +url +events +description +createdAt +disabledAt +state +/);
      expect(two).toMatch(
        /^whk_\S+ {2}http:\/\/localhost:1\/two {2}lead\.created, run\.completed {2}none +\S+Z +none +healthy +none +0 +/,
      );
      expect(one).toContain("http://localhost:1/one");
      expect(one?.indexOf("healthy")).toBe(head?.indexOf("state"));
      expect(end).toBe("");
      // A page that is followed by another.
      for (let count = 0; count < 101; count++) await makeWorkspace();
      const lines = await show("listWorkspaces", "{}");
      expect(lines[0]).toMatch(/^workspaceId +name +/);
      expect(lines.slice(1, 101).every((line) => line.startsWith("wks_"))).toBe(true);
      expect(lines.slice(101)).toEqual(["", expect.stringMatching(/^nextCursor {2}\S+$/), ""]);
    },
  );

  test.each([
    [["createUser"], "createUser: no such method; npm run platform -- --help lists them"],
    [["ledger", "{workspaceId}"], "the input is not JSON: "],
    [
      ["recordLeads", '{ "workspaceId": "wks_1", "leads": [{ "reference": "" }] }'],
      "recordLeads: leads[0].source, leads[0].agent are missing; leads[0].reference: ",
    ],
    [["ledger", "{}", "{}"], "expected one method and one JSON text, in quotes"],
    [["ledger", '{ "workspaceId": "wks_unknown" }'], "ledger: workspaceId: no such workspace\n"],
  ])("says in one sentence what is wrong with %j", async (args, sentence) => {
    const { code, stdout, stderr } = await platform(...args);
    expect(stderr).toContain(sentence);
    expect(stderr).not.toContain("    at ");
    expect(stdout).toBe("");
    expect(code).toBe(1);
  });

  test("revokes a leaked key by its text, which it does not print", async () => {
    const workspaceId = await makeWorkspace();
    const { keyId, apiKey } = await runtime.env.PLATFORM.createApiKey({ workspaceId });
    const revoked = await platform("revokeApiKey", JSON.stringify({ apiKey }), "--actor", "Ada");
    expect(JSON.parse(revoked.stdout)).toEqual({ keyId, workspaceId });
    const trail = await platform("listAuditTrail", JSON.stringify({ workspaceId }));
    expect(JSON.parse(trail.stdout).items[0]).toMatchObject({
      method: "revokeApiKey",
      ids: [keyId],
      actor: "Ada",
    });
    const listed = await platform("listApiKeys", JSON.stringify({ workspaceId }));
    expect(JSON.parse(listed.stdout).items).toMatchObject([{ revokedAt: expect.any(String) }]);
    expect(listed.stdout + listed.stderr + revoked.stderr).not.toContain(String(apiKey));
  });

  test("says that no server is running", async () => {
    const elsewhere = { WRANGLER_REGISTRY_PATH: join(registry, "empty") };
    const { code, stderr } = await run(
      [process.execPath, "scripts/platform/platform.ts", "ledger"],
      elsewhere,
    );
    expect(stderr).toBe("The local server is not running: start it with `npm start`.\n");
    expect(code).toBe(1);
  });

  test("says that you are not logged in, with --remote", async () => {
    const command = [process.execPath, "scripts/platform/platform.ts", "ledger", "--remote"];
    const { code, stdout, stderr } = await run(command, {
      HOME: registry,
      XDG_CONFIG_HOME: registry,
      CLOUDFLARE_API_TOKEN: "",
    });
    expect(stderr).toBe(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.\n",
    );
    expect(stdout).toBe("");
    expect(code).toBe(1);
  });

  test("--help lists every method with a sentence and its inputs", async () => {
    const { code, stdout } = await platform("--help");
    expect(code).toBe(0);
    for (const [name, { about: sentence, input }] of Object.entries(OPERATIONS)) {
      expect(sentence).toMatch(/^[A-Z].*\.$/);
      const [, about = ""] = stdout.split(`\n${name}\n`);
      expect(about.startsWith(`  ${sentence}\n`)).toBe(true);
      const [lines = ""] = about.split("\n\n");
      for (const field of Object.keys(input.shape))
        expect(lines).toMatch(new RegExp(`^ {2}${field}\\??  +\\S`, "m"));
    }
    expect((await platform()).stdout).toBe(stdout);
  });

  test("--help says how methods take a file of lines", () => {
    expect(describeMethods()).toMatch(
      /^npm run platform -- METHOD INPUT \[--ndjson\] \[--workspace ID\] /,
    );
    for (const [method, operation] of Object.entries<Operation>(OPERATIONS)) {
      const help = describeMethod(method, operation);
      expect(help).toContain("a file that contains it, or - for standard input");
      const records = /^record/.test(method);
      expect(help.includes(".ndjson --ndjson --workspace wks_…\n")).toBe(records);
      expect(help.includes(`${method} - --ndjson --workspace wks_…`)).toBe(records);
    }
    expect(describeMethod("exportWorkspace", OPERATIONS.exportWorkspace)).toMatch(
      /npm run -s platform .* --ndjson > /,
    );
  });

  test("METHOD --help shows one method, with types, meanings and valid examples", async () => {
    const { stdout } = await platform("createApiKey", "--help");
    expect(stdout).toContain("Creates an API key for a workspace. The key is shown only once.");
    expect(stdout).toMatch(/^ {2}workspaceId +id +wks_…$/m);
    expect(stdout).toMatch(/^ {2}requestsPerWindow\? +integer, 1 to 1000000 +the key's own quota/m);
    expect(stdout).toContain(`npm run platform -- createApiKey '{ "workspaceId": "wks_…" }'`);
    expect(stdout).not.toContain("recordLeads");
    for (const { input, examples } of Object.values<Operation>(OPERATIONS))
      for (const example of examples) expect(() => parseInput(input, example)).not.toThrow();
  });
});

test("a table shows a nested object compactly, and items of several kinds as JSON", () => {
  const attempt = { at: "2026-11-01T00:00:00.000Z", status: null, outcome: "timed_out" };
  const page = {
    items: [
      { id: "a", attempt },
      { id: "bcd", attempt: null },
    ],
    nextCursor: null,
  };
  expect(toTable(page).split("\n")).toEqual([
    "id   attempt",
    "a    at 2026-11-01T00:00:00.000Z, outcome timed_out",
    "bcd  none",
  ]);
  expect(toTable({ items: [{ a: 1 }, { b: 2 }], nextCursor: "x" })).toBe(
    '{"a":1}\n{"b":2}\n\nnextCursor  x',
  );
});

describe("exportWorkspace --ndjson", () => {
  let workspaceId: string;
  let ids: string[];
  beforeAll(async () => {
    workspaceId = await makeWorkspace();
    ids = [];
    for (let from = 0; from < 1_200; from += 100) {
      const leads = Array.from({ length: 100 }, (_, i) => ({
        reference: `${from + i}`,
        source: "crm" as const,
        agent: { reference: "agent", name: "Agence" },
        customFields: { lines: "a\nb\u2028c" },
      }));
      ids.push(...(await runtime.env.PLATFORM.recordLeads({ workspaceId, leads })).ids);
    }
  });

  /** The parsed lines of an export. */
  const itemsOf = (text: string) =>
    text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { kind: string; id: string });
  const leadsOf = (text: string) =>
    itemsOf(text)
      .filter(({ kind }) => kind === "lead")
      .map(({ id }) => id);

  test("prints all pages, one item per line, and nothing else", async () => {
    const { code, stdout, stderr } = await platform(
      "exportWorkspace",
      JSON.stringify({ workspaceId }),
      "--ndjson",
    );
    expect(stderr).toBe("");
    expect(code).toBe(0);
    expect(itemsOf(stdout)[0]).toMatchObject({ kind: "workspace", id: workspaceId });
    expect(leadsOf(stdout).toSorted()).toEqual(ids.toSorted());
  });

  test("continues from a cursor", async () => {
    const { nextCursor: cursor, items } = await runtime.env.PLATFORM.exportWorkspace({
      workspaceId,
    });
    const first = JSON.parse(JSON.stringify(items)) as { kind: string; id: string }[];
    const rest = await platform(
      "exportWorkspace",
      JSON.stringify({ workspaceId, cursor: String(cursor) }),
      "--ndjson",
    );
    const before = first.filter(({ kind }) => kind === "lead").map(({ id }) => id);
    expect([...before, ...leadsOf(rest.stdout)].toSorted()).toEqual(ids.toSorted());
  });

  test.runIf(process.platform === "linux")(
    "shows its progress on standard error, in a terminal",
    async () => {
      const file = join(registry, "export.ndjson");
      const { stdout: shown } = await inTerminal(
        `scripts/platform/platform.ts exportWorkspace '{"workspaceId":"${workspaceId}"}' --ndjson > ${file}`,
      );
      expect(shown).toContain("1,201 items");
      expect(leadsOf(readFileSync(file, "utf8"))).toHaveLength(1_200);
    },
  );

  test("is refused with other methods", async () => {
    const { code, stderr } = await platform("ledger", "--ndjson");
    expect(stderr).toContain(
      "--ndjson is for exportWorkspace and methods that record, not for ledger",
    );
    expect(code).toBe(1);
  });
});

describe("eraseWorkspace", () => {
  test("erases the whole workspace, and can be run again", async () => {
    const workspaceId = await makeWorkspace();
    await seed("--leads", "3000", "--workspace", workspaceId);
    for (let time = 0; time < 2; time++) {
      const { code, stdout } = await platform("eraseWorkspace", JSON.stringify({ workspaceId }));
      expect(JSON.parse(stdout)).toEqual({ done: true, remaining: 0 });
      expect(code).toBe(0);
    }
    expect(await countLeads(workspaceId)).toBe(0);
  });

  /** A platform that reports these numbers of remaining rows, one per call. */
  const platformOf = (remaining: number[]) => {
    const left = [...remaining];
    const call = async () => {
      const rows = left.shift() ?? expect.unreachable("called once too often");
      return { done: rows === 0, remaining: rows };
    };
    return { left, platform: { call } as unknown as PlatformClient };
  };

  test("is called until it is done", async () => {
    const { platform, left } = platformOf([5_000, 3_000, 1, 0]);
    expect(await eraseAll(platform, { workspaceId: "wks_1" })).toEqual({
      done: true,
      remaining: 0,
    });
    expect(left).toEqual([]);
  });

  test("gives up if others record just as fast, and says how to continue", async () => {
    const { platform } = platformOf([5_000, 5_000]);
    await expect(eraseAll(platform, { workspaceId: "wks_1" })).rejects.toThrow(
      "5,000 rows remain: stop recording into the workspace, and run this again",
    );
  });
});

test("the client waits for a server that starts late, as long as it is told to", async () => {
  const later = mkdtempSync(join(tmpdir(), "registry-"));
  const script = `
    const { openPlatform } = await import("${join(ROOT, "scripts/shared/platform-client.ts")}");
    await using platform = await openPlatform({ patienceMs: 60_000 });
    console.log("found");`;
  const node = [process.execPath, "--input-type=module", "--eval", script];
  const opened = run(node, { WRANGLER_REGISTRY_PATH: later });
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  const late = await startRuntime({ registry: later });
  expect(await opened).toEqual({ code: 0, stdout: "found\n", stderr: "" });
  await late.stop();
  rmSync(later, { recursive: true, force: true });
});
