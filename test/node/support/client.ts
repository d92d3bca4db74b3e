import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeEach } from "vitest";
import { type RuntimeOptions, startRuntime } from "../../../scripts/shared/runtime.ts";
import { opened } from "./opened.ts";
import { startProgram } from "./process.ts";
import { openWorkspace } from "./workspace.ts";

const run = promisify(execFile);

// biome-ignore lint/suspicious/noExplicitAny: the types are generated during the test, and checked by the build
type Built = any;

/** The example client, built in its own folder. */
interface BuiltClient {
  folder: string;
  /** The exports of `public-api-client`. */
  main: Built;
  /** The exports of `public-api-client/webhooks`. */
  webhooks: Built;
  remove(): void;
}

/** For a file of tests: the service, and the client built for it. Without a network, tests are skipped. */
export async function openClient(options: RuntimeOptions = {}) {
  const runtime = await opened(startRuntime({ ...options, assets: true }));
  const built = (await buildClient(runtime.url.origin)) as BuiltClient;
  afterAll(() => built?.remove());
  beforeEach((t) => {
    if (!built) t.skip("the package registry cannot be reached");
  });
  return {
    runtime,
    built,
    /** A new workspace, and a client with its key. */
    open: async (requestsPerWindow?: number) => {
      const workspace = await openWorkspace(runtime, { requestsPerWindow });
      const { apiKey } = workspace;
      return { ...workspace, client: new built.main.Client({ url: runtime.url.origin, apiKey }) };
    },
    /** Starts a program of the client. */
    start: (file: string, env: NodeJS.ProcessEnv) =>
      startProgram([process.execPath, `dist/${file}.js`], {
        cwd: built.folder,
        env: { ...process.env, API_URL: runtime.url.origin, ...env },
      }),
  };
}

/**
 * Builds the client as described in the docs at `origin`: from the files offered there, with types
 * generated from the document. The code in its README is compiled too. Null without a network,
 * which is only required in CI.
 */
async function buildClient(origin: string): Promise<BuiltClient | null> {
  const folder = mkdtempSync(join(tmpdir(), "client-"));
  const remove = () => rmSync(folder, { recursive: true });
  const read = (name: string) => readFileSync(join(folder, name), "utf8");
  await download(origin, folder);
  if (!(await install(folder))) {
    remove();
    return null;
  }
  await runNpm(folder, ["run", "generate", "--", `${origin}/openapi.json`]);
  const [, usage = ""] = /```ts\n([^`]+)```/.exec(read("README.md")) ?? [];
  writeFileSync(join(folder, "usage.ts"), usage);
  await runNpm(folder, ["run", "build"]);
  const { exports } = JSON.parse(read("package.json"));
  const main = await import(join(folder, exports["."]));
  const webhooks = await import(join(folder, exports["./webhooks"]));
  return { folder, main, webhooks, remove };
}

async function download(origin: string, folder: string): Promise<void> {
  const docs = await fetchText(`${origin}/docs.md`);
  const command = /curl -fsSO "\$API_URL(\/docs\/client\/)\{([^}]+)\}"/;
  const [, path = "", names = ""] = command.exec(docs) ?? [];
  for (const name of names.split(","))
    writeFileSync(join(folder, name), await fetchText(origin + path + name));
}

async function fetchText(url: string): Promise<string> {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} answers ${answer.status}`);
  return answer.text();
}

/**
 * Installs the locked packages of a folder; false without a network, which is only required in CI. An npm that does not
 * end is ended, and another one finds most packages in the cache.
 */
export async function install(folder: string): Promise<boolean> {
  const isCi = process.env.CI === "true";
  const patience = isCi ? [] : ["--fetch-retries=0"];
  const words = ["ci", "--prefer-offline", "--no-audit", "--no-fund", ...patience];
  try {
    await runNpm(folder, words).catch((error) => {
      if (!error.killed) throw error;
      return runNpm(folder, words);
    });
    return true;
  } catch (error) {
    const unreachable = /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT/;
    if (!isCi && unreachable.test(String(error))) return false;
    throw error;
  }
}

/** Runs npm in `folder`, with the user's own settings. */
async function runNpm(folder: string, words: string[]): Promise<void> {
  // The npm that runs this test passes on this project's script shell, which the client does not
  // have.
  const { npm_config_script_shell: _, ...env } = process.env;
  // Any other signal makes npm wait for what it has begun.
  await run("npm", words, { cwd: folder, env, timeout: 120_000, killSignal: "SIGKILL" });
}
