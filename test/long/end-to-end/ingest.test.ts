import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { derivedId } from "../../../src/contract/ids.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { opened } from "../../node/support/opened.ts";
import { runProgram } from "../../node/support/process.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
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
const receiver = await opened(startReceiver());
const runtime = await opened(
  startRuntime({
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

function leadMessage(workspaceId: string, reference: string) {
  const agent = { reference: "lyon", name: "Agence Lumière Lyon" };
  const lead = { reference, source: "crm", agent, name: "Zoë" };
  return { method: "recordLeads", input: { workspaceId, leads: [lead] } };
}

test("the ingest queue leads to the API and to signed webhooks; an invalid message in between is set aside", async () => {
  const { workspaceId, api, subscribe } = await openWorkspace(runtime);
  const { secret } = await subscribe(receiver.url, ["lead.created", "run.completed"]);
  const { RECORDS, PLATFORM } = runtime.env;
  const [bad, lead] = [leadMessage(workspaceId, ""), leadMessage(workspaceId, "1")];
  await RECORDS.send(lead);
  await RECORDS.send(bad);
  await RECORDS.send(JSON.stringify(leadMessage(workspaceId, "2")), { contentType: "text" });
  await RECORDS.send(lead);
  await until(() => receiver.posts.length >= 2 && dead.length >= 1);

  const { data: leads } = await api<Page<Lead>>("GET", "/v1/leads");
  const told: Lead[] = receiver.posts.map(({ body, headers }) => {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return JSON.parse(body.toString()).data;
  });
  const byId = (a: Lead, b: Lead) => (a.id < b.id ? 1 : -1);
  expect(leads).toHaveLength(2);
  expect(told.sort(byId)).toEqual(leads.sort(byId));
  const reason = expect.stringMatching(/^recordLeads: leads\[0\]\.reference: Too small/);
  expect(dead).toEqual([{ reason, method: "recordLeads", message: bad }]);
  await until(async () => (await PLATFORM.ledger({ workspaceId })).pending === 0);
  expect(receiver.posts).toHaveLength(2);
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
    const ask = async (method: string) => {
      const { stdout, stderr } = await runProgram([command, copy, method, "Agence"], { env });
      return stdout + stderr;
    };
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
        const id = await derivedId(kind, "wks_1", reference);
        expect(spawnSync("python3", args, options)).toMatchObject({ stderr: "", stdout: id });
      }
  });
});
