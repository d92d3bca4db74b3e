import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { derivedId } from "../../../src/contract/ids.ts";
import { opened } from "../../node/support/opened.ts";
import { type Post, startReceiver } from "../../node/support/receiver.ts";
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
const receiver = await opened(startReceiver());
const runtime = await opened(
  startRuntime({
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
  }),
);

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

const PLATFORM = join(import.meta.dirname, "../../../examples/platform");

describe("the examples for platforms", () => {
  test.each([
    ["php", "public_api.php", "echo json_encode(platform($argv[1], ['name' => $argv[2]]));"],
    [
      "python3",
      "public_api.py",
      "import sys\nprint(json.dumps(platform(sys.argv[1], name=sys.argv[2])))",
    ],
  ])("call the Platform API over HTTPS in %s", async (command, file, call) => {
    const folder = mkdtempSync(join(tmpdir(), "client-"));
    const copy = join(folder, file);
    writeFileSync(copy, `${readFileSync(join(PLATFORM, file), "utf8")}\n${call}`);
    const env = { ...process.env, API_URL: runtime.url.origin, PLATFORM_KEY };
    const ask = (method: string) =>
      new Promise<string>((resolve) => {
        execFile(command, [copy, method, "Agence"], { env }, (_, stdout, stderr) =>
          resolve(stdout + stderr),
        );
      });
    expect(await ask("createWorkspace")).toMatch(/^\{"workspaceId": ?"wks_\w+"\}/);
    expect(await ask("createApiKey")).toContain("createApiKey: workspaceId is missing");
    rmSync(folder, { recursive: true });
  });

  const { error } = spawnSync("python3", ["--version"]);

  test.skipIf(error)("compute the same ids as the service in Python", async () => {
    const program = "import sys, public_api as api; print(api.identifier(*sys.argv[1:]), end='')";
    const options = { cwd: PLATFORM, encoding: "utf8" } as const;
    for (const kind of ["automation", "lead", "run"] as const)
      for (const reference of ["1", 'crm/é "\\ \n\t\u0001\u007f\u2028 🌻', "x".repeat(512)]) {
        const args = ["-Bc", program, kind, "wks_1", reference];
        const { stdout, stderr } = spawnSync("python3", args, options);
        expect(stderr).toBe("");
        expect(stdout).toBe(await derivedId(kind, "wks_1", reference));
      }
  });
});
