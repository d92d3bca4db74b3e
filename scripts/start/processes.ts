import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Writable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { ROOT, WRANGLER_ENV } from "../shared/checkout.ts";
import { safeLines } from "../shared/terminal.ts";
import type { UrlRules } from "./url-rules.ts";

/** Where the output of a process goes. */
export interface Output {
  /** Receives the whole output. */
  log: Writable;
  /** Called with each error. */
  onError: (line: string) => void;
}

/** A process that was started here. */
interface Run {
  /** Resolves with its exit code when it ends; null if a signal ended it. */
  ended: Promise<number | null>;
  /** Ends it and every process that it started. */
  stop(): Promise<void>;
}

const WRANGLER = join(ROOT, "node_modules/wrangler/wrangler-dist/cli.js");
const STOP_TIMEOUT_MS = 5_000;

/** A server that was started here. */
export interface ServerRun extends Run {
  /** Resolves when it accepts requests. */
  ready: Promise<void>;
}

/**
 * A module that the server imports first. It ends the server when the process that started it is gone, even if killed,
 * and passes on what a command line would show to everybody.
 */
const LEASH = `data:text/javascript,${encodeURIComponent(
  `process.once("disconnect", () => process.kill(process.pid, "SIGTERM")); process.channel?.unref();
  process.argv.push("--var", "PLATFORM_KEYS:" + process.env.PLATFORM_KEYS);`,
)}`;

/**
 * Serves the Worker on `port`, rebuilt whenever its source changes.
 *
 * @param rules variables that decide which webhook URLs are accepted.
 * @param platformKeys the secret `PLATFORM_KEYS`.
 */
export function serve(
  port: number,
  rules: UrlRules,
  platformKeys: string,
  output: Output,
): ServerRun {
  const child = runNode(
    [
      ...["--import", LEASH, WRANGLER, "dev", join(ROOT, "scripts/shared/limited-worker.ts")],
      ...["--port", String(port), "--inspector-port", "0"],
      ...["--var", `PORTAL_ORIGIN:http://localhost:${port}`],
      // The local runtime has no jurisdictions.
      "JURISDICTION:",
      ...Object.entries(rules).map(([name, value]) => `${name}:${value}`),
      "--env=",
      "--show-interactive-dev-session=false",
    ],
    output,
    { PLATFORM_KEYS: platformKeys },
  );
  const ready = new Promise<void>((resolve) => {
    child.on("message", (message) => {
      if (String(message).includes("DEV_SERVER_READY")) resolve();
    });
  });
  return { ...toRun(child), ready };
}

/** Runs Node in a process group of its own, so that Ctrl-C does not reach it past `stop`. */
function runNode(args: string[], { log, onError }: Output, env = {}): ChildProcess {
  const child = spawn(process.execPath, ["--no-warnings", ...args], {
    cwd: ROOT,
    env: { ...process.env, ...WRANGLER_ENV, CI: "1", ...env },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    detached: true,
  });
  for (const stream of [child.stdout, child.stderr])
    if (stream)
      createInterface({ input: stream }).on("line", (coloured) => {
        const line = safeLines(stripVTControlCharacters(coloured));
        log.write(`${line}\n`);
        if (line.includes("[ERROR]")) onError(line);
      });
  return child;
}

function toRun(child: ChildProcess): Run {
  const ended = once(child, "exit").then(([code]) => {
    killGroup(child);
    return code as number | null;
  });
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await Promise.race([ended, setTimeout(STOP_TIMEOUT_MS, null, { ref: false })]);
    killGroup(child);
    await ended;
  };
  return { ended, stop };
}

/** Kills a process and those that it started, if any are left. */
function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
