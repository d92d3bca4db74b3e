import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { derivedId } from "../../../src/contract/ids.ts";
import { type Post, type Receiver, startReceiver } from "../../node/support/receiver.ts";
import { until } from "../../support/until.ts";

/** A consumer of the dead-letter queue, which forwards what it gets. */
const DEAD_LETTERS = `export default {
  queue: (batch, env) =>
    env.KEEP.fetch("http://keep/", {
      method: "POST",
      body: JSON.stringify(batch.messages.map(({ body }) => body)),
    }),
};`;

const PLATFORM_KEY = btoa("p".repeat(32));

const dead: unknown[] = [];
const logs: string[] = [];
let runtime: Runtime;
let receiver: Receiver;

beforeAll(async () => {
  receiver = await startReceiver();
  runtime = await startRuntime({
    onLog: (line) => logs.push(line),
    vars: { PLATFORM_KEYS: `crm:${PLATFORM_KEY}` },
    beside: [
      {
        name: "dead-letters",
        compatibilityDate: "2026-10-20",
        modules: [{ type: "ESModule", path: "dead-letters.js", contents: DEAD_LETTERS }],
        queueConsumers: { "platform-records-dead": { maxBatchTimeout: 0 } },
        serviceBindings: {
          KEEP: async (request) => {
            dead.push(...((await request.json()) as unknown[]));
            return new Response() as never;
          },
        },
      },
    ],
  });
});

afterAll(async () => {
  await runtime.stop();
  await receiver.close();
});

async function makeWorkspace() {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const { apiKey } = await PLATFORM.createApiKey({ workspaceId });
  const call = async (path: string, body?: unknown) => {
    const headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" };
    const answer = await fetch(new URL(path, runtime.url), {
      method: body ? "POST" : "GET",
      headers,
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    // biome-ignore lint/suspicious/noExplicitAny: the assertions check its shape
    return (await answer.json()) as any;
  };
  return { workspaceId: String(workspaceId), call };
}

const AGENT = { reference: "lyon", name: "Agence Lumière Lyon" };

function leadMessage(workspaceId: string, ...references: string[]) {
  const lead = (reference: string) => ({ reference, source: "crm", agent: AGENT, name: "Zoë" });
  return { method: "recordLeads", input: { workspaceId, leads: references.map(lead) } };
}

describe("the ingest queue", () => {
  test("leads to the API and to signed webhooks; an invalid message in between is set aside", async () => {
    const { workspaceId, call } = await makeWorkspace();
    const { id, secret } = await call("/v1/webhooks", {
      url: receiver.url,
      events: ["lead.created", "run.completed"],
    });
    expect(id).toMatch(/^whk_/);
    const bad = leadMessage(workspaceId, "");
    const lead = leadMessage(workspaceId, "1");
    await runtime.env.RECORDS.send(lead);
    await runtime.env.RECORDS.send(bad);
    await runtime.env.RECORDS.send(JSON.stringify(leadMessage(workspaceId, "2")), {
      contentType: "text",
    });
    await runtime.env.RECORDS.send(lead);
    await until(() => receiver.posts.length >= 2 && dead.length >= 1);

    const { data: leads } = await call("/v1/leads");
    const told = receiver.posts.map(({ body, headers }: Post) => {
      new Webhook(secret).verify(body, headers as Record<string, string>);
      return JSON.parse(body.toString());
    });
    const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? 1 : -1);
    expect(leads).toHaveLength(2);
    expect(told.map(({ data }) => data).sort(byId)).toEqual(leads.sort(byId));
    expect(dead).toEqual([
      {
        reason: expect.stringMatching(/^recordLeads: leads\[0\]\.reference: Too small/),
        method: "recordLeads",
        message: bad,
      },
    ]);
    await until(async () => (await runtime.env.PLATFORM.ledger({ workspaceId })).pending === 0);
    expect(receiver.posts).toHaveLength(2);
  });
});

const DOCUMENTED = readFileSync(join(import.meta.dirname, "../../../docs/recording.md"), "utf8");

describe("the clients in the documentation", () => {
  const folder = mkdtempSync(join(tmpdir(), "client-"));

  afterAll(() => rmSync(folder, { recursive: true }));

  test.each([
    ["php", "php", "<?php ", 'echo json_encode(platform($argv[1], ["name" => $argv[2]]));'],
    [
      "python",
      "python3",
      "import sys\n",
      "print(json.dumps(platform(sys.argv[1], name=sys.argv[2])))",
    ],
  ])("call the Platform API over HTTPS in %s", async (language, command, start, call) => {
    const client = new RegExp(`\`\`\`${language}\\n([^\`]*platform\\([^\`]*)\`\`\``);
    const [, lines = ""] = client.exec(DOCUMENTED) ?? [];
    const file = join(folder, language);
    const here = lines.replace("https://api.example.com/", runtime.url.href);
    writeFileSync(file, `${start}${here}\n${call}`);
    const env = { ...process.env, PLATFORM_KEY };
    const ask = (method: string) =>
      new Promise<string>((resolve) => {
        execFile(command, [file, method, "Agence"], { env }, (_, stdout, stderr) =>
          resolve(stdout + stderr),
        );
      });
    expect(await ask("createWorkspace")).toMatch(/^\{"workspaceId": ?"wks_\w+"\}/);
    expect(await ask("createApiKey")).toContain("createApiKey: workspaceId is missing");
  });
});

describe("the Python code in the documentation", () => {
  const { error } = spawnSync("python3", ["--version"]);

  test.skipIf(error)("computes the same ids as the service", async () => {
    const [, lines = ""] = /```python\n(import hashlib[\s\S]*?)```/.exec(DOCUMENTED) ?? [];
    const program = `${lines}\nimport sys\nprint(identifier(*sys.argv[1:]), end="")`;
    for (const kind of ["automation", "lead", "run"] as const)
      for (const reference of ["1", 'crm/é "\\ \n\t\u0001\u007f\u2028 🌻', "x".repeat(512)]) {
        const args = ["-c", program, kind, "wks_1", reference];
        const { stdout, stderr } = spawnSync("python3", args, { encoding: "utf8" });
        expect(stderr).toBe("");
        expect(stdout).toBe(await derivedId(kind, "wks_1", reference));
      }
  });
});
