import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { recordLines } from "../../../scripts/platform/record-lines.ts";
import type { PlatformClient } from "../../../scripts/shared/platform-client.ts";
import type { PlatformInput } from "../../../src/platform/operations.ts";
import { opened } from "../../node/support/opened.ts";
import { openPlatformCommand, refusalOf } from "../../node/support/platform-command.ts";

const command = await opened(openPlatformCommand());
const { platformHere, platformWith, seed, inTerminal, countLeads } = command;
const file = join(command.folder, "records.ndjson");
const isLinux = process.platform === "linux";

let workspaceId: string;
beforeEach(async () => {
  workspaceId = await command.makeWorkspace();
});

test("an input may be in a file, or in standard input", async () => {
  const input = '{ "name": "Agence" }';
  writeFileSync(file, input);
  for (const end of [
    await platformHere("createWorkspace", file),
    await platformWith(input, "createWorkspace", "-"),
  ])
    expect(end).toMatchObject({
      stderr: "",
      stdout: expect.stringMatching(/^\{\s*"workspaceId": ?"wks_\w+"\s*\}\n$/),
    });
});

const LINES = ["--ndjson", "--workspace", "wks_1"];
const LEADS_EXPECTED = "--leads: expected a whole number of at least 1";

test.each<[string[], sentence: string]>([
  [["createWorkspace", "missing.json"], "missing.json cannot be read (ENOENT)"],
  [["createWorkspace", "scripts"], "scripts cannot be read (EISDIR)"],
  [["createWorkspace", "README.md"], "the input is not JSON: "],
  [["recordLeads", ...LINES], "--ndjson needs a file, or -"],
  [["recordLeads", "x.ndjson", "--ndjson"], "--ndjson needs --workspace ID"],
  [["recordLeads", "missing", ...LINES], "missing cannot be read (ENOENT)"],
  [["ledger", ...LINES.slice(1)], "--workspace is for methods that record, with --ndjson"],
])("an input that cannot be used is named in one sentence: %j", async (args, sentence) => {
  const said = await refusalOf(...args);
  if (sentence.endsWith(": ")) expect(said.slice(0, sentence.length)).toBe(sentence);
  else expect(said).toBe(sentence);
});

test.each<[string[], sentence: string]>([
  [[], LEADS_EXPECTED],
  [["--leads", "10", "--workspace", "wks_unknown"], "recordLeads: workspaceId: no such workspace"],
])("npm run seed says what is wrong with %j in one sentence", async (args, sentence) => {
  const { code, stdout, stderr } = await seed(...args);
  expect(stderr.slice(0, sentence.length)).toBe(sentence);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
});

describe("records, one per line", () => {
  const leads = (count: number) =>
    Array.from({ length: count }, (_, i) => ({
      reference: `line-${i + 1}`,
      source: "crm",
      agent: { reference: "agent", name: "Agence" },
      name: `Nº ${i + 1}`,
    }));
  const linesOf = (records: object[]) => records.map((record) => JSON.stringify(record)).join("\n");
  const record = (method = "recordLeads", lines = "") => {
    if (lines) writeFileSync(file, lines);
    return platformHere(method, file, "--ndjson", "--workspace", workspaceId);
  };

  test("are recorded in hundreds, from a file and from standard input", async () => {
    const { code, stdout, stderr } = await record("recordLeads", linesOf(leads(250)));
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({ recorded: 250, created: 250 });
    const args = ["recordLeads", "-", "--ndjson", "--workspace", workspaceId];
    const again = await platformWith(`${linesOf(leads(260))}\r\n\n`, ...args);
    expect(JSON.parse(again.stdout)).toEqual({ recorded: 260, created: 10 });
    expect(await countLeads(workspaceId)).toBe(260);
  });

  test("may also be automations and runs", async () => {
    const agent = { reference: "agent", name: "Agence" };
    const kind = { type: "social_messages", provider: "instagram", status: "active" };
    const { stdout } = await record(
      "recordAutomations",
      linesOf([{ reference: "a", agent, ...kind }]),
    );
    expect(JSON.parse(stdout)).toEqual({ recorded: 1, created: 1 });
    const automationId = await command.runtime.env.DB.prepare(
      "SELECT id FROM automations WHERE workspace_id = ?",
    )
      .bind(workspaceId)
      .first("id");
    const run = { reference: "r", automationId, status: "success", triggerType: "message" };
    const recorded = await record("recordRuns", linesOf([run]));
    expect(JSON.parse(recorded.stdout)).toEqual({ recorded: 1, created: 1 });
    // An error that only the server can find names the line too.
    const wrong = { ...run, reference: "s", automationId: "aut_1" };
    expect(await record("recordRuns", `\n${linesOf([run, wrong])}`)).toMatchObject({
      code: 1,
      stderr:
        "line 3: automationId: no such automation in this workspace\nNothing is recorded. Fix line 3 and run it again.\n",
    });
  });

  /** What recording fails with, without a process. */
  const failureOf = (call: (_: string, input: PlatformInput<"recordLeads">) => Promise<unknown>) =>
    recordLines({ call } as unknown as PlatformClient, "recordLeads", workspaceId, file).then(
      () => expect.unreachable("it was to fail"),
      (error: Error) => error.message,
    );

  test.each([
    ["not JSON", '{"reference":', "line 251: not JSON: "],
    ["not a lead", '{"reference":"x"}', "line 251: source, agent are missing\n"],
    [
      "of another kind",
      '{"a":1,"source":"crm","agent":{"reference":"a","name":"b"}}',
      "line 251: reference is missing; the property at position 1 is unknown\n",
    ],
    ["a text", '"lead"', "line 251: Invalid input: expected object"],
  ])("stop at an invalid line, which is named: %s", async (_, wrong, sentence) => {
    writeFileSync(file, [linesOf(leads(250)), wrong, linesOf(leads(400).slice(300))].join("\n"));
    const message = await failureOf(async (_, input) =>
      JSON.parse(JSON.stringify(await command.runtime.env.PLATFORM.recordLeads(input))),
    );
    expect(message.slice(0, sentence.length)).toBe(sentence);
    expect(message.split("\n").slice(1)).toEqual([
      "Lines 1 to 200 are recorded (200 new), and no later lines. Fix line 251 and run it again: recorded lines stay unchanged.",
    ]);
    expect(await countLeads(workspaceId)).toBe(200);
  });

  test("say that nothing is recorded if a line of the first hundred is invalid, and which", async () => {
    const lines = `\n${linesOf(leads(2))}\n{"reference" 1}\n${linesOf(leads(3))}`;
    expect(await record("recordLeads", lines)).toMatchObject({
      code: 1,
      stderr:
        "line 4: not JSON: Expected ':' after property name in JSON at column 14\nNothing is recorded. Fix line 4 and run it again.\n",
    });
    expect(await countLeads(workspaceId)).toBe(0);
  });

  test("that are not UTF-8 are named before anything is recorded", async () => {
    const lines = leads(300).map(({ reference, ...lead }, i) =>
      JSON.stringify({ reference, ...lead, name: i < 250 ? "Camille" : "Hélène" }),
    );
    writeFileSync(file, lines.join("\n"), "latin1");
    const said = "line 251: not UTF-8: convert the file first\n";
    expect(await record()).toMatchObject({
      code: 1,
      stderr: `${said}Nothing is recorded. Fix line 251 and run it again.\n`,
    });
    writeFileSync(file, `\ufeff${lines.join("\n")}`, "utf16le");
    expect((await record()).stderr).toMatch(/^line 1: not UTF-8/);
    expect(await countLeads(workspaceId)).toBe(0);
    writeFileSync(file, `{\n"name": "Agence Lumière"}`, "latin1");
    const refused = await platformHere("createWorkspace", file);
    expect(refused.stderr).toBe("line 2: not UTF-8: convert the file first\n");
  });

  test.runIf(isLinux)(
    "may begin with byte order marks, and contain U+2028, even in a pipe",
    async () => {
      const [a, b] = leads(2);
      const name = "Camille\u2028Durand";
      const lines = `\ufeff${JSON.stringify({ ...a, name })}\n\ufeff${JSON.stringify(b)}\n`;
      const pipe = join(command.folder, "pipe");
      execFileSync("sh", ["-c", 'mkfifo "$0"', pipe]);
      const args = [pipe, "--ndjson", "--workspace", workspaceId];
      const [{ stdout, stderr }] = await Promise.all([
        platformHere("recordLeads", ...args),
        writeFile(pipe, lines),
      ]);
      expect([stderr, stdout && JSON.parse(stdout)]).toEqual(["", { recorded: 2, created: 2 }]);
      writeFileSync(file, '\ufeff{ "name": "Agence Lumière" }');
      expect((await platformHere("createWorkspace", file)).code).toBe(0);
    },
  );

  test("say what may be recorded if the server goes away in the meantime", async () => {
    writeFileSync(file, linesOf(leads(250)));
    let calls = 0;
    const message = await failureOf(async () => {
      if (++calls === 2) throw new Error("The local server has gone.");
      return { ids: [], created: 100 };
    });
    expect(message).toContain(
      "The local server has gone.\nLines 1 to 100 are recorded (100 new); later lines may be. Run it again: recorded lines stay unchanged.",
    );
  });

  test("for an unknown workspace are not recorded", async () => {
    workspaceId = "wks_unknown";
    const { stderr } = await record("recordLeads", linesOf(leads(2)));
    expect(stderr).toBe("recordLeads: workspaceId: no such workspace\nNothing is recorded.\n");
    expect(await platformHere("recordLeads", file)).toMatchObject({
      code: 1,
      stderr: "the input has one JSON text per line: use --ndjson --workspace ID to record them\n",
    });
  });

  test.runIf(isLinux)("are counted in a terminal", async () => {
    writeFileSync(file, linesOf(leads(300)));
    const { stdout } = await inTerminal(
      `platform/platform.ts recordLeads ${file} --ndjson --workspace ${workspaceId}`,
    );
    expect(stdout).toContain("300 leads recorded");
    expect(stdout).toMatch(/^created {3}300\r$/m);
  });
});

describe("npm run seed", () => {
  test.runIf(isLinux)(
    "records as many leads as it is told, doubles none when it runs again, and shows its progress in a terminal",
    async () => {
      const args = ["--leads", "1000", "--workspace", workspaceId];
      expect((await seed(...args)).stdout).toMatch(
        /^1,?000 leads in [\d.]+ s: [\d,]+ leads per second\.$/m,
      );
      expect(await countLeads(workspaceId)).toBe(1_000);
      const { stdout } = await inTerminal(`seed.ts --leads 1100 --workspace ${workspaceId}`);
      expect(stdout).toContain("1,100 of 1,100 leads");
      expect(await countLeads(workspaceId)).toBe(1_100);
    },
  );
});
