import type { ChildProcess } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import type { LocalState } from "../../../scripts/shared/local-state.ts";
import { withTestSettings } from "../../../scripts/shared/test-settings.ts";
import { until } from "../../support/until.ts";
import { startProgram } from "./process.ts";
import { freePort } from "./server.ts";

/** A running command of `package.json`. */
export interface Command {
  child: ChildProcess;
  /** Its output so far, standard output and standard error. */
  output(): string;
  /** Its exit code. */
  ended: Promise<number | null>;
}

/** `npm start` in a copy of this checkout, with its own data and ports. */
export interface LocalServer {
  base: string;
  /** The copy. */
  folder: string;
  child: ChildProcess;
  state: LocalState;
  /** What its terminal shows. */
  output(): string;
  /** The content of its log file. */
  log(): string;
  /** Starts a command in the copy, as npm does. */
  start(command: string, ...args: string[]): Command;
  /** Ends it as Ctrl-C does. */
  end(): Promise<void>;
  /** Ends it, and removes the copy. */
  stop(): Promise<void>;
}

/** What is not copied: generated files but the assets, and what the copy shares. */
const LEFT_OUT = new Set(["node_modules", ".git", ".wrangler", ".dev.vars", "dist"]);

/** Environment variables that tests may have set for this checkout and a copy must not inherit. */
const ownEnv = (folder: string) => ({
  WRANGLER_REGISTRY_PATH: join(folder, ".wrangler/registry"),
  WRANGLER_LOG: undefined,
});

/** Copies this checkout without its data, and with the settings for tests. @returns the folder, which the caller must remove. */
function copyCheckout(): string {
  const folder = mkdtempSync(join(tmpdir(), "checkout-"));
  const config = join(folder, "wrangler.toml");
  const filter = (path: string) => !LEFT_OUT.has(basename(path));
  cpSync(ROOT, folder, { recursive: true, filter });
  writeFileSync(config, withTestSettings(readFileSync(config, "utf8")));
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  if (process.env.ASSETS_ARE_BUILT)
    cpSync(join(ROOT, "dist/assets"), join(folder, "dist/assets"), { recursive: true });
  return folder;
}

/**
 * Runs `npm start` until `stop`.
 *
 * @param change changes the copy of this checkout in which it runs.
 * @param env of `npm start`.
 */
export async function startLocalServer(
  change: (folder: string) => void = () => {},
  env: NodeJS.ProcessEnv = {},
): Promise<LocalServer> {
  const folder = copyCheckout();
  change(folder);
  const port = await freePort();
  const server = startIn(folder, "start", [], { ...env, PORT: String(port) });
  const end = async () => {
    server.child.kill("SIGINT");
    await server.ended;
  };
  const stop = async () => {
    await end();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await until(() => {
      if (server.child.exitCode !== null) throw new Error("it has ended");
      return /(appears|will arrive) here/.test(server.output());
    }, 180_000);
  } catch {
    await stop();
    throw new Error(`npm start did not get ready: ${server.output()}`);
  }
  return {
    base: `http://localhost:${port}`,
    folder,
    child: server.child,
    state: JSON.parse(readFileSync(join(folder, ".wrangler/local.json"), "utf8")),
    output: server.output,
    log: () => readFileSync(join(folder, ".wrangler/start.log"), "utf8"),
    start: (command, ...args) => startIn(folder, command, args),
    end,
    stop,
  };
}

/** Starts a command of `package.json` in a copy of this checkout. */
function startIn(
  folder: string,
  command: string,
  args: string[],
  env: NodeJS.ProcessEnv = {},
): Command {
  const { scripts } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const [program = "", ...given] = scripts[command].replace(/^exec /, "").split(" ");
  const { child, output, ended } = startProgram(
    [program === "node" ? process.execPath : program, ...given, ...args],
    { cwd: folder, env: { ...process.env, ...ownEnv(folder), ...env } },
  );
  return { child, output, ended: ended.then(({ code }) => code) };
}
