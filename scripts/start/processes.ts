import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Writable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { ROOT, WRANGLER_ENV } from "../shared/checkout.ts";
import { openLogLines } from "./log-lines.ts";

/** Where the output of a process goes. */
export interface Output {
  /** All of it. */
  log: Writable;
  /** A line that must not go unseen: it tells of an error, or of a refused input. */
  onNews: (line: string) => void;
}

/** A process that was started here. */
export interface Run {
  /** Its exit code when it has ended; null if a signal ended it. */
  ended: Promise<number | null>;
  /** Ends it and all that it started. */
  stop(): Promise<void>;
}

const WRANGLER = join(ROOT, "node_modules/wrangler/wrangler-dist/cli.js");
const STOP_PATIENCE_MS = 5_000;

/** How the server tells what became of itself, and of its Worker's source. */
const CRASHED = /The Workers runtime crashed/;
const NOT_BUILT = /\[ERROR\] Build failed/;
const BUILT = /server updated and ready/;

/** A server that was started here. */
export interface ServerRun extends Run {
  /** Resolves when it takes requests. */
  ready: Promise<void>;
  isRunning(): boolean;
  /** Whether the source of its Worker cannot be built: until it can, it lets requests wait. */
  isBroken(): boolean;
}

/** Loaded before the server: ends it when the process that started it has gone, however it went. */
const LEASH = `data:text/javascript,${encodeURIComponent(
  'process.once("disconnect", () => process.kill(process.pid, "SIGTERM")); process.channel?.unref();',
)}`;

/** Brings a local database up to date. @param binding what it is bound as. */
export function migrate(binding: string, output: Output): Run {
  const child = runNode([WRANGLER, "d1", "migrations", "apply", binding, "--local"], output);
  return toRun(child);
}

/** Makes the sample workspace ready, with `receiverUrl` as a subscriber of the server at `base`. */
export function prepare(base: string, receiverUrl: string, output: Output): Run {
  return toRun(runNode([join(ROOT, "scripts/start/prepare.ts"), base, receiverUrl], output));
}

/**
 * Serves the Worker on `port`, and anew whenever its source changes; webhooks may go to http and
 * private addresses.
 *
 * @param onCrash is told when a part of it has crashed, and was replaced: it may answer or not.
 */
export function serve(port: number, output: Output, onCrash: () => void): ServerRun {
  let isBroken = false;
  const watch = (line: string) => {
    if (CRASHED.test(line)) onCrash();
    if (NOT_BUILT.test(line)) isBroken = true;
    if (BUILT.test(line)) isBroken = false;
  };
  const child = runNode(
    [
      ...["--import", LEASH, WRANGLER, "dev", "--port", String(port), "--inspector-port", "0"],
      ...["--var", "ALLOW_LOCAL_WEBHOOKS:true", `PORTAL_ORIGIN:http://localhost:${port}`],
      "--show-interactive-dev-session=false",
    ],
    output,
    watch,
  );
  const ready = new Promise<void>((resolve) => {
    child.on("message", (message) => {
      if (String(message).includes("DEV_SERVER_READY")) resolve();
    });
  });
  const isRunning = () => child.exitCode === null && child.signalCode === null;
  return { ...toRun(child), ready, isRunning, isBroken: () => isBroken };
}

/**
 * Runs Node in a process group of its own, so that Ctrl-C does not reach it past `stop`.
 *
 * @param onLine is given each line, without colours.
 */
function runNode(
  args: string[],
  { log, onNews }: Output,
  onLine: (line: string) => void = () => {},
): ChildProcess {
  const child = spawn(process.execPath, ["--no-warnings", ...args], {
    cwd: ROOT,
    env: { ...process.env, ...WRANGLER_ENV, CI: "1" },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    detached: true,
  });
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue;
    const read = openLogLines();
    createInterface({ input: stream }).on("line", (coloured) => {
      const line = stripVTControlCharacters(coloured);
      onLine(line);
      const { text, isNews } = read(line);
      if (text === null) return;
      log.write(`${text}\n`);
      if (isNews) onNews(text);
    });
  }
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
    await Promise.race([ended, setTimeout(STOP_PATIENCE_MS, null, { ref: false })]);
    killGroup(child);
    await ended;
  };
  return { ended, stop };
}

/** Ends at once whatever is left of a process and of those that it started. */
function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
