import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { afterAll, describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { operationsOf } from "../../support/document.ts";

// These do not come with types that suit, or none at all.
const require = createRequire(import.meta.url);

const receiver = await opened(startReceiver());
const runtime = await opened(startRuntime());
const { origin } = runtime.url;
const { recordAutomations, recordRuns, recordLeads, subscribe, apiKey } =
  await openWorkspace(runtime);
await recordLeads(["1", "2"]);
const [automationId = ""] = await recordAutomations(["1"]);
await recordRuns(automationId, ["1"]);
const { id: webhookId } = await subscribe(receiver.url);
const folder = mkdtempSync(join(tmpdir(), "importers-"));
afterAll(() => rm(folder, { recursive: true }));

// biome-ignore lint/suspicious/noExplicitAny: documents and collections are untyped
type Part = any;

async function readDocument(path: string): Promise<Part> {
  return (await fetch(`${origin}${path}`)).json();
}

/** A request as an importer shows it, ready to be sent. */
interface Imported {
  method: string;
  /** With `:name` for each parameter. */
  path: string;
  query: URLSearchParams;
}

/** The requests in a collection's folders. */
function requestsIn(items: Part[], inside: "item" | "items"): Part[] {
  return items.flatMap((one) => (one[inside] ? requestsIn(one[inside], inside) : [one.request]));
}

/** What is filled in and switched on, as it is when the user presses Send. */
function queryOf(parameters: Part[], name: "key" | "name"): URLSearchParams {
  return new URLSearchParams(parameters.map((one) => [one[name], one.value]));
}

const IMPORTERS: Record<string, (document: Part) => Promise<Imported[]>> = {
  async Postman(document) {
    const { convertV2 } = require("openapi-to-postmanv2");
    const { promise, resolve, reject } = Promise.withResolvers<Part>();
    convertV2({ type: "json", data: document }, {}, (error: Error | null, converted: Part) =>
      converted?.result ? resolve(converted.output[0].data) : reject(error ?? converted.reason),
    );
    return requestsIn((await promise).item, "item").map(({ method, url }) => ({
      method,
      path: `/${url.path.join("/")}`,
      query: queryOf(
        url.query.filter(({ disabled }: Part) => !disabled),
        "key",
      ),
    }));
  },
  async Bruno(document) {
    const { openApiToBruno } = require("@usebruno/converters");
    const { items } = await openApiToBruno(document);
    return requestsIn(items, "items").map(({ method, url, params }) => ({
      method,
      path: url.replace("{{baseUrl}}", ""),
      query: queryOf(
        params.filter(({ type, enabled }: Part) => type === "query" && enabled),
        "name",
      ),
    }));
  },
};

describe.each(Object.entries(IMPORTERS))("%s", (_, importAll) => {
  test.each(["/openapi.json", "/openapi-3.0.json"])(
    "makes requests of %s that are answered as they are, once they have an id",
    async (file) => {
      const document = await readDocument(file);
      const imported = await importAll(document);
      expect(imported).toHaveLength(operationsOf(document).length);
      const reads = imported.filter(({ method }) => method === "GET");
      expect(reads).toHaveLength(6);
      for (const { path, query } of reads) {
        const url = `${origin}${path.replace(":id", automationId)}?${query}`;
        const answer = await fetch(url, { headers: { Authorization: `Bearer ${apiKey}` } });
        expect([url, answer.status]).toEqual([url, 200]);
        if (path.endsWith(":id")) continue;
        // Every list has what it shows filled in.
        expect([...query.keys()].toSorted()).toEqual(["cursor", "limit"]);
        const { data } = (await answer.json()) as { data: unknown[] };
        expect(data).not.toEqual([]);
      }
    },
  );
});

/** A program that uses every operation of a generated client. */
const PROGRAM = `
import { Api, AutomationStatus, ErrorCode, WebhookEvent, type Lead } from "./client.ts";

export async function use(baseUrl: string, apiKey: string, automationId: string, webhookId: string) {
  const { v1 } = new Api({
    baseUrl,
    baseApiParams: { headers: { Authorization: "Bearer " + apiKey } },
  });
  const first = (await v1.listLeads({ limit: 1 })).data;
  const second = (await v1.listLeads({ limit: 1, cursor: first.next_cursor ?? "" })).data;
  const leads: Lead[] = [...first.data, ...second.data];
  const automation = (await v1.getAutomation(automationId)).data;
  const paused = (await v1.controlAutomation(automationId, { status: AutomationStatus.Paused })).data;
  const runs = (await v1.listRunsOfAutomation(automationId)).data.data;
  const made = (await v1.createWebhook({
    url: "https://hooks.example.com/automations",
    events: [WebhookEvent.LeadCreated],
  })).data;
  const secret: string = made.secret;
  await v1.deleteWebhook(made.id);
  const code: ErrorCode = await v1.getAutomation("aut_0").catch(({ error }) => error.error.code);
  // @ts-expect-error: the type of a parameter is known
  await v1.listRuns({ limit: "1" });
  // @ts-expect-error: a client cannot set this
  const impossible = () => v1.controlAutomation(automationId, { status: "archived" });
  return {
    leads: leads.length,
    statuses: [automation.status, paused.status],
    runs: [runs.length, (await v1.listRuns()).data.data.length, runs[0]?.lead_id ?? null],
    automations: (await v1.listAutomations()).data.data.map(({ id }) => id),
    webhooks: (await v1.listWebhooks()).data.data.map(({ id }) => id),
    secret: secret.length > 0,
    isNotFound: code === ErrorCode.AutomationNotFound,
  };
}
`;

test("a client that a generator makes of the 3.0 document has types, and calls every operation", async () => {
  const { generateApi } = require("swagger-typescript-api");
  const spec = await readDocument("/openapi-3.0.json");
  await generateApi({ spec, output: folder, fileName: "client.ts", silent: true });
  const program = join(folder, "program.ts");
  writeFileSync(program, PROGRAM);
  const options = ["--noEmit", "--strict", "--allowImportingTsExtensions", "--ignoreConfig"];
  const settings = ["--target", "es2024", "--module", "nodenext", "--types", ""];
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
