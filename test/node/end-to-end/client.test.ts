import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { until } from "../../support/until.ts";

const run = promisify(execFile);

const LEADS = 250;
const WINDOW_SECONDS = 3;

let runtime: Runtime;
let folder: string;
/** The statuses of the answers to `GET /v1/leads`, as the service logs them. */
const statuses: number[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "client-"));
  runtime = await startRuntime({
    vars: { QUOTA_WINDOW_SECONDS: WINDOW_SECONDS },
    onLog: (line) => {
      // The runtime itself writes lines too.
      if (!line.startsWith("{")) return;
      const { event, route, status } = JSON.parse(line);
      if (event === "request" && route === "/v1/leads") statuses.push(status);
    },
  });
});

afterAll(async () => {
  await runtime.stop();
  rmSync(folder, { recursive: true });
});

/** A workspace with leads, and a key that may ask once in a window. */
async function openWorkspace() {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const { apiKey } = await PLATFORM.createApiKey({ workspaceId, requestsPerWindow: 1 });
  const agent = { reference: "lyon", name: "Agence Lumière Lyon" };
  const recorded: string[] = [];
  while (recorded.length < LEADS) {
    const leads = Array.from({ length: Math.min(100, LEADS - recorded.length) }, (_, i) => ({
      reference: `lead-${recorded.length + i}`,
      source: "crm" as const,
      agent,
    }));
    const { ids } = await PLATFORM.recordLeads({ workspaceId, leads });
    recorded.push(...[...ids].map(String));
  }
  return { apiKey: String(apiKey), recorded };
}

/** Runs npm in the copied example, with what its user sets; its output. */
async function npm(words: string[], settings: Record<string, string> = {}): Promise<string> {
  // The npm that runs this test hands down the shell of this project, which the example has not.
  const { npm_config_script_shell: _, ...inherited } = process.env;
  const env = { ...inherited, ...settings };
  const { stdout } = await run("npm", words, { cwd: folder, env, timeout: 60_000 });
  return stdout;
}

/** Installs what the example needs; false without a network, which is allowed only outside CI. */
async function install(): Promise<boolean> {
  const isCi = process.env.CI === "true";
  const patience = isCi ? [] : ["--fetch-retries=0"];
  try {
    await npm(["ci", "--prefer-offline", "--no-audit", "--no-fund", ...patience]);
    return true;
  } catch (error) {
    const unreachable = /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT/;
    if (!isCi && unreachable.test(String(error))) return false;
    throw error;
  }
}

test("the example client reads every lead, within its quota", { timeout: 120_000 }, async (t) => {
  cpSync(join(ROOT, "examples/client"), folder, {
    recursive: true,
    filter: (path) => !/\/(node_modules|dist|api\.d\.ts)$/.test(path),
  });
  if (!(await install())) t.skip("the package registry cannot be reached");
  const { apiKey, recorded } = await openWorkspace();
  await npm(["run", "generate", "--", new URL("/openapi.json", runtime.url).href]);
  const settings = { API_URL: runtime.url.origin, API_KEY: apiKey };
  const output = await npm(["start", "--silent"], settings);
  const ids = output
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).id);
  expect(ids).toHaveLength(LEADS);
  expect(ids.toSorted()).toEqual(recorded.toSorted());
  // The log may come after what it tells of.
  await until(() => statuses.length >= 5, 5_000).catch(() => {});
  // A client that did not wait as long as it was told would be refused more often.
  expect(statuses).toEqual([200, 429, 200, 429, 200]);
});
