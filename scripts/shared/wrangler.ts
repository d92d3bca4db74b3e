import { type ChildProcess, spawn } from "node:child_process";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { stripVTControlCharacters } from "node:util";
import { ROOT } from "./checkout.ts";

/** The result of a wrangler call. */
interface Answer {
  ok: boolean;
  stdout: string;
  /** Why it failed, in wrangler's words, without decoration. */
  complaint: string;
}

/** Calls the `wrangler` that is first on the path, where npm puts the project's own. */
export interface Wrangler {
  /** Runs it without prompts, and captures its output. */
  ask(...args: string[]): Promise<Answer>;
  /** Runs it in the user's terminal. `env` adds to its environment. @returns its exit code. */
  show(args: string[], env?: Record<string, string>): Promise<number>;
}

/**
 * @param env its environment, which must not contain the secret.
 * @param options further arguments of each call.
 */
export function openWrangler(env: NodeJS.ProcessEnv, options: string[] = []): Wrangler {
  const PATH = [env.PATH, join(ROOT, "node_modules/.bin")].join(delimiter);
  const base = { ...env, PATH, WRANGLER_SEND_METRICS: "false", WRANGLER_HIDE_BANNER: "true" };
  return {
    async ask(...args) {
      const child = spawn("wrangler", [...args, ...options], {
        cwd: ROOT,
        // Its results are log messages, which the user may have turned off.
        env: { ...base, CI: "1", WRANGLER_LOG: "log" },
        stdio: ["ignore", "pipe", "pipe"],
      });
      const [code, stdout, stderr] = await Promise.all([
        ended(child),
        text(child.stdout),
        text(child.stderr),
      ]);
      return { ok: code === 0, stdout, complaint: complaintOf(stderr || stdout) };
    },
    show: (args, more = {}) =>
      ended(
        spawn("wrangler", [...args, ...options], {
          cwd: ROOT,
          env: { ...base, ...more },
          stdio: "inherit",
        }),
      ),
  };
}

/** The signals with which a user ends a command. */
export const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Waits for a process to end; whatever ends this process ends that one first. */
async function ended(child: ChildProcess): Promise<number> {
  const pass = (signal: NodeJS.Signals) => child.kill(signal);
  for (const signal of SIGNALS) process.on(signal, pass);
  try {
    return await new Promise((resolve, reject) => {
      child.on("error", (error) => reject(new Error(`wrangler cannot be run: ${error.message}`)));
      child.on("close", (code) => resolve(code ?? 1));
    });
  } finally {
    for (const signal of SIGNALS) process.off(signal, pass);
  }
}

/** Extracts the complaints of wrangler, without decoration. */
function complaintOf(output: string): string {
  return stripVTControlCharacters(output)
    .split("\n")
    .map((line) => line.replace(/^\s*✘ \[ERROR\]\s*/, "").trimEnd())
    .filter((line) => line.trim() !== "" && !line.includes("Logs were written to"))
    .join("\n");
}

/** Parses JSON; null if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
