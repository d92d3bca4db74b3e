import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Writable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { ROOT, WRANGLER_ENV } from "../shared/checkout.ts";
import { openLogLines } from "./log-lines.ts";
import type { UrlRules } from "./url-rules.ts";

/** Where the output of a process goes. */
export interface Output {
  /** All of it. */
  log: Writable;
  /** Called with what must be seen: an error, a refused input, a failed attempt. */
  onNews: (line: string) => void;
}

/** A process that was started here. */
export interface Run {
  /** Resolves with its exit code when it ends; null if a signal ended it. */
  ended: Promise<number | null>;
  /** Ends it and every process that it started. */
  stop(): Promise<void>;
}

const WRANGLER = join(ROOT, "node_modules/wrangler/wrangler-dist/cli.js");
const STOP_PATIENCE_MS = 5_000;

/** What the server logs when it crashes, and when its source fails to build or builds again. */
const CRASHED = /The Workers runtime crashed/;
const NOT_BUILT = /\[ERROR\] Build failed/;
const BUILT = /server updated and ready/;

/** A server that was started here. */
export interface ServerRun extends Run {
  /** Resolves when it accepts requests. */
  ready: Promise<void>;
  isRunning(): boolean;
  /** Whether the Worker's source does not build; requests wait until it does. */
  isBroken(): boolean;
}

/**
 * Imported by the server first: ends it when the process that started it is gone, even if killed, and
 * passes on what a command line would show to everybody.
 */
const LEASH = `data:text/javascript,${encodeURIComponent(
  `process.once("disconnect", () => process.kill(process.pid, "SIGTERM")); process.channel?.unref();
  const { PLATFORM_KEYS } = process.env;
  if (PLATFORM_KEYS) process.argv.push("--var", "PLATFORM_KEYS:" + PLATFORM_KEYS);`,
)}`;

/** Migrates a local database. @param binding its binding. */
export function migrate(binding: string, output: Output): Run {
  const child = runNode(
    [WRANGLER, "d1", "migrations", "apply", binding, "--local", "--env="],
    output,
  );
  return toRun(child);
}

/** Prepares the sample workspace of the server at `base`, with a subscription for `receiverUrl`. */
export function prepare(base: string, receiverUrl: string | null, output: Output): Run {
  const args = receiverUrl === null ? [base] : [base, receiverUrl];
  return toRun(runNode([join(ROOT, "scripts/start/prepare.ts"), ...args], output));
}

/**
 * Serves the Worker on `port`, rebuilt whenever its source changes.
 *
 * @param rules variables that decide which webhook URLs are accepted.
 * @param onCrash called when a part of the server has crashed and been replaced; it may or may not
 *   answer afterwards.
 */
export function serve(
  port: number,
  rules: UrlRules,
  output: Output,
  onCrash: () => void,
): ServerRun {
  let isBroken = false;
  const watch = (line: string) => {
    if (CRASHED.test(line)) onCrash();
    if (NOT_BUILT.test(line)) isBroken = true;
    if (BUILT.test(line)) isBroken = false;
  };
  const child = runNode(
    [
      ...["--import", LEASH, WRANGLER, "dev", join(ROOT, "scripts/start/worker.ts")],
      ...["--port", String(port), "--inspector-port", "0"],
      ...["--var", `PORTAL_ORIGIN:http://localhost:${port}`],
      ...Object.entries(rules).map(([name, value]) => `${name}:${value}`),
      "--env=",
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
 * @param onLine called with each line, without colours.
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
      const { text, news } = read(line);
      if (text !== null) log.write(`${text}\n`);
      if (news !== null) onNews(news);
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

/** Kills what is left of a process and of those that it started. */
function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
