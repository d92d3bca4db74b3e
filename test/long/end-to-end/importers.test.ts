import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { afterAll, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { shareRuntime } from "../../node/support/local-runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { operationsOf } from "../../support/document.ts";

// It comes with types that do not suit.
const require = createRequire(import.meta.url);

const receiver = await opened(startReceiver());
const runtime = await shareRuntime();
const { origin } = runtime.url;
const { recordAutomations, recordRuns, recordLeads, subscribe, apiKey } =
  await openWorkspace(runtime);
await recordLeads(["1", "2"]);
const [automationId = ""] = await recordAutomations(["1"]);
await recordRuns(automationId, ["1"]);
const { id: webhookId } = await subscribe(receiver.url);
const folder = mkdtempSync(join(tmpdir(), "importers-"));
afterAll(() => rm(folder, { recursive: true }));

async function readDocument(path: string): Promise<object> {
  // The generator blocks this thread, so it would not notice that the server has ended an idle connection.
  const answer = await fetch(`${origin}${path}`, { headers: { Connection: "close" } });
  return (await answer.json()) as object;
}

test.each(["/openapi.json", "/openapi-3.0.json"])(
  "a tool that sends the examples of %s gets an answer to each read, once it has an id",
  async (file) => {
    const reads = operationsOf(await readDocument(file)).filter(({ method }) => method === "GET");
    expect(reads).toHaveLength(6);
    for (const { path, parameters } of reads) {
      const query = new URLSearchParams(
        parameters
          .filter((parameter) => parameter.in === "query")
          .map(({ name, example }) => [name, String(example)]),
      );
      const url = `${origin}${path.replace("{id}", automationId)}?${query}`;
      const answer = await fetch(url, { headers: { Authorization: `Bearer ${apiKey}` } });
      expect([url, answer.status]).toEqual([url, 200]);
      if (path.endsWith("{id}")) continue;
      // Every list has what it shows filled in.
      expect([...query.keys()]).toEqual(expect.arrayContaining(["cursor", "limit"]));
      const { data } = (await answer.json()) as { data: unknown[] };
      // The example of a filter finds records of the document's examples, and maybe none of these.
      if (query.size === 2) expect(data, url).not.toEqual([]);
    }
  },
);

/** A program that uses every operation of a generated client. */
const PROGRAM = `
import { Api, AutomationControl, ErrorCode, WebhookEvent, type Lead } from "./client/index.ts";

export async function use(BASE: string, TOKEN: string, automationId: string, webhookId: string) {
  const { automations, leads, runs, webhooks } = new Api({ BASE, TOKEN });
  const first = await leads.listLeads({ limit: 1 });
  const second = await leads.listLeads({ limit: 1, cursor: first.next_cursor ?? "" });
  const found: Lead[] = [...first.data, ...second.data];
  const id = automationId;
  const automation = await automations.getAutomation({ id });
  const requestBody = { status: AutomationControl.status.PAUSED };
  const paused = await automations.controlAutomation({ id, requestBody });
  const ofAutomation = (await runs.listRunsOfAutomation({ id })).data;
  const made = await webhooks.createWebhook({
    requestBody: {
      url: "https://hooks.example.com/automations",
      events: [WebhookEvent.LEAD_CREATED],
    },
  });
  const secret: string = made.secret;
  await webhooks.deleteWebhook({ id: made.id });
  const code: ErrorCode = await automations.getAutomation({ id: "aut_0" }).catch(({ body }) => body.error.code);
  // @ts-expect-error: the type of a parameter is known
  await runs.listRuns({ limit: "1" });
  // @ts-expect-error: a client cannot set this
  const impossible = () => automations.controlAutomation({ id, requestBody: { status: "archived" } });
  return {
    leads: found.length,
    statuses: [automation.status, paused.status],
    runs: [ofAutomation.length, (await runs.listRuns({})).data.length, ofAutomation[0]?.lead_id ?? null],
    automations: (await automations.listAutomations({})).data.map(({ id }) => id),
    webhooks: (await webhooks.listWebhooks({})).data.map(({ id }) => id),
    secret: secret.length > 0,
    isNotFound: code === ErrorCode.AUTOMATION_NOT_FOUND,
  };
}
`;

test("a client that a generator makes of the 3.0 document calls every operation", async () => {
  const { generate } = require("openapi-typescript-codegen");
  await generate({
    input: await readDocument("/openapi-3.0.json"),
    output: join(folder, "client"),
    clientName: "Api",
    useOptions: true,
  });
  const program = join(folder, "program.ts");
  writeFileSync(program, PROGRAM);
  const options = ["--noEmit", "--strict", "--allowImportingTsExtensions", "--ignoreConfig"];
  const settings = ["--target", "es2024", "--moduleResolution", "bundler", "--types", ""];
  const tsc = join(ROOT, "node_modules/.bin/tsc");
  const { stdout } = spawnSync(tsc, [...options, ...settings, program], { encoding: "utf8" });
  expect(stdout).toBe("");

  const outfile = join(folder, "program.mjs");
  await build({ entryPoints: [program], outfile, bundle: true, format: "esm" });
  const { use } = await import(outfile);
  expect(await use(origin, apiKey, automationId, webhookId)).toEqual({
    leads: 2,
    statuses: ["active", "paused"],
    runs: [1, 1, null],
    automations: [automationId],
    webhooks: [webhookId],
    secret: true,
    isNotFound: true,
  });
});
