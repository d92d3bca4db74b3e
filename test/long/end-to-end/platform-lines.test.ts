import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { recordLines } from "../../../scripts/platform/record-lines.ts";
import type { PlatformClient } from "../../../scripts/shared/platform-client.ts";
import type { PlatformInput } from "../../../src/platform/operations.ts";
import { opened } from "../../node/support/opened.ts";
import { openPlatformCommand } from "../../node/support/platform-command.ts";

const command = await opened(openPlatformCommand());

describe("an input in a file, or in standard input", () => {
  const input = '{ "name": "Agence" }';

  test("is read like JSON in quotes", async () => {
    const file = join(command.registry, "input.json");
    writeFileSync(file, input);
    const created = { workspaceId: expect.stringMatching(/^wks_/) };
    const { stdout, stderr } = await command.platform("createWorkspace", file);
    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toEqual(created);
    expect(JSON.parse((await command.platformWith(input, "createWorkspace", "-")).stdout)).toEqual(
      created,
    );
  });

  test.each([
    [["createWorkspace", "missing.json"], "missing.json cannot be read (ENOENT)\n"],
    [["createWorkspace", "scripts"], "scripts cannot be read (EISDIR)\n"],
    [["createWorkspace", "README.md"], "the input is not JSON: "],
    [["createWorkspace", "-"], "the input is not JSON: "],
  ])("is named in one sentence if it cannot be read: %j", async (args, sentence) => {
    const { code, stdout, stderr } = await command.platform(...args);
    expect(stderr.startsWith(sentence)).toBe(true);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  });
});

describe("records, one per line", () => {
  const leadOf = (n: number) => ({
    reference: `line-${n}`,
    source: "crm",
    agent: { reference: "agent", name: "Agence" },
    name: `Nº ${n}`,
  });
  const linesOf = (records: object[]) => records.map((record) => JSON.stringify(record)).join("\n");
  const leads = (count: number) => Array.from({ length: count }, (_, i) => leadOf(i + 1));
  let workspaceId: string;
  let file: string;
  beforeEach(async () => {
    workspaceId = await command.makeWorkspace();
    file = join(command.registry, "records.ndjson");
  });
  const record = (method: string, from = file) =>
    command.platform(method, from, "--ndjson", "--workspace", workspaceId);

  /** The command's client, without its process. */
  const client = () => {
    const call = async (_: string, input: PlatformInput<"recordLeads">) =>
      JSON.parse(JSON.stringify(await command.runtime.env.PLATFORM.recordLeads(input)));
    return { call } as unknown as PlatformClient;
  };

  test("are recorded in hundreds, from a file and from standard input", async () => {
    writeFileSync(file, linesOf(leads(250)));
    const { code, stdout, stderr } = await record("recordLeads");
    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toEqual({ recorded: 250, created: 250 });
    expect(code).toBe(0);
    const more = `${linesOf(leads(260))}\r\n\n`;
    const args = ["recordLeads", "-", "--ndjson", "--workspace", workspaceId];
    const again = await command.platformWith(more, ...args);
    expect(JSON.parse(again.stdout)).toEqual({ recorded: 260, created: 10 });
    expect(await command.countLeads(workspaceId)).toBe(260);
  });

  test("may also be automations and runs", async () => {
    const automation = {
      reference: "a",
      type: "social_messages",
      provider: "instagram",
      agent: { reference: "agent", name: "Agence" },
      status: "active",
    };
    writeFileSync(file, linesOf([automation]));
    const { stdout } = await record("recordAutomations");
    expect(JSON.parse(stdout)).toEqual({ recorded: 1, created: 1 });
    const { items } = await command.runtime.env.PLATFORM.exportWorkspace({ workspaceId });
    const exported = JSON.parse(JSON.stringify(items)) as { kind: string; id: string }[];
    const automationId = exported.find(({ kind }) => kind === "automation")?.id;
    const run = { reference: "r", automationId, status: "success", triggerType: "message" };
    writeFileSync(file, linesOf([run]));
    expect(JSON.parse((await record("recordRuns")).stdout)).toEqual({ recorded: 1, created: 1 });
    // An error that only the server can find names the line too.
    writeFileSync(file, `\n${linesOf([run, { ...run, reference: "s", automationId: "aut_1" }])}`);
    const refused = await record("recordRuns");
    expect(refused.stderr).toBe(
      "line 3: automationId: no such automation in this workspace\nNothing is recorded. Fix line 3 and run it again.\n",
    );
    expect(refused.code).toBe(1);
  });

  test.each([
    ["not JSON", '{"reference":', "line 251: not JSON: "],
    ["not a lead", '{"reference":"x"}', "line 251: source, agent are missing\n"],
    [
      "of another kind",
      '{"a":1,"source":"crm","agent":{"reference":"a","name":"b"}}',
      'line 251: reference is missing; Unrecognized key: "a"\n',
    ],
    ["a text", '"lead"', "line 251: Invalid input: expected object"],
  ])("stop at an invalid line, which is named: %s", async (_, wrong, sentence) => {
    writeFileSync(file, [linesOf(leads(250)), wrong, linesOf(leads(400).slice(300))].join("\n"));
    const recording = recordLines(client(), "recordLeads", workspaceId, file);
    const { message } = await recording.then(
      () => expect.unreachable("the line is valid"),
      (error: Error) => error,
    );
    expect(message.startsWith(sentence)).toBe(true);
    expect(message.split("\n").slice(1)).toEqual([
      "Lines 1 to 200 are recorded (200 new), and no later lines. Fix line 251 and run it again: recorded lines stay unchanged.",
    ]);
    expect(await command.countLeads(workspaceId)).toBe(200);
  });

  test("say that nothing is recorded if a line of the first hundred is invalid, and which", async () => {
    writeFileSync(file, `\n${linesOf(leads(2))}\n{"reference" 1}\n${linesOf(leads(3))}`);
    const { code, stderr } = await record("recordLeads");
    expect(stderr).toBe(
      "line 4: not JSON: Expected ':' after property name in JSON at column 14\nNothing is recorded. Fix line 4 and run it again.\n",
    );
    expect(code).toBe(1);
    expect(await command.countLeads(workspaceId)).toBe(0);
  });

  test("say what may be recorded if the server goes away meanwhile", async () => {
    writeFileSync(file, linesOf(leads(250)));
    let calls = 0;
    const call = async () => {
      if (++calls === 2) throw new Error("The local server has gone.");
      return { ids: [], created: 100 };
    };
    const platform = { call } as unknown as PlatformClient;
    await expect(recordLines(platform, "recordLeads", workspaceId, file)).rejects.toThrow(
      "The local server has gone.\nLines 1 to 100 are recorded (100 new); later lines may be. Run it again: recorded lines stay unchanged.",
    );
  });

  test("for an unknown workspace are not recorded", async () => {
    writeFileSync(file, linesOf(leads(2)));
    const args = ["--ndjson", "--workspace", "wks_unknown"];
    const { stderr } = await command.platform("recordLeads", file, ...args);
    expect(stderr).toBe("recordLeads: workspaceId: no such workspace\nNothing is recorded.\n");
  });

  test("are recognised if --ndjson is forgotten", async () => {
    writeFileSync(file, linesOf(leads(2)));
    const { code, stderr } = await command.platform("recordLeads", file);
    expect(stderr).toBe(
      "the input has one JSON text per line: use --ndjson --workspace ID to record them\n",
    );
    expect(code).toBe(1);
  });

  test.runIf(process.platform === "linux")("are counted in a terminal", async () => {
    writeFileSync(file, linesOf(leads(300)));
    const { stdout } = await command.inTerminal(
      `scripts/platform/platform.ts recordLeads ${file} --ndjson --workspace ${workspaceId}`,
    );
    expect(stdout).toContain("300 leads recorded");
    expect(stdout).toMatch(/^created {3}300\r$/m);
  });

  test.each([
    [["recordLeads", "--ndjson", "--workspace", "wks_1"], "--ndjson needs a file, or -\n"],
    [["recordLeads", "x.ndjson", "--ndjson"], "--ndjson needs --workspace ID\n"],
    [
      ["recordLeads", "missing", "--ndjson", "--workspace", "wks_1"],
      "missing cannot be read (ENOENT)\n",
    ],
    [["ledger", "--workspace", "wks_1"], "--workspace is for methods that record, with --ndjson\n"],
  ])("are refused in one sentence: %j", async (args, sentence) => {
    expect(await command.platform(...args)).toEqual({ code: 1, stdout: "", stderr: sentence });
  });
});
