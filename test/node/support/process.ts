import { type ChildProcessByStdio, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { vi } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";

/** How a program ended. */
interface End {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A running program. */
export interface Program {
  child: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Its output so far, standard output and standard error. */
  output(): string;
  ended: Promise<End>;
}

/** Starts a program, by default in this checkout; it reads `stdin`, or what is written if null. */
export function startProgram(
  [program = "", ...args]: string[],
  { stdin = "", ...options }: SpawnOptions & { stdin?: string | null } = {},
): Program {
  const child = spawn(program, args, { cwd: ROOT, ...options, stdio: ["pipe", "pipe", "pipe"] });
  const end: End = { code: null, stdout: "", stderr: "" };
  let output = "";
  for (const name of ["stdout", "stderr"] as const)
    child[name].on("data", (chunk) => {
      end[name] += chunk;
      output += chunk;
    });
  // A program that does not read its input may already have ended.
  child.stdin.on("error", () => {});
  if (stdin !== null) child.stdin.end(stdin);
  const ended = once(child, "close").then(([code]) => ({ ...end, code }));
  return { child, output: () => output, ended };
}

/** Runs a program to its end. */
export const runProgram = (...call: Parameters<typeof startProgram>) => startProgram(...call).ended;

/**
 * Does what a command does, in this process, which need not load wrangler and the sources each time. Standard error is
 * the sentence with which the command fails.
 */
export async function runHere(command: () => Promise<void>): Promise<End> {
  let stdout = "";
  const print = vi.spyOn(console, "log").mockImplementation((lines) => {
    stdout += `${lines}\n`;
  });
  try {
    await command();
    return { code: 0, stdout, stderr: "" };
  } catch (error) {
    return { code: 1, stdout, stderr: `${(error as Error).message}\n` };
  } finally {
    print.mockRestore();
  }
}

/** Starts a script in a terminal, which Debian's `script` provides: only on Linux. */
export function startInTerminal(script: string, options: SpawnOptions = {}): Program {
  const line = `stty cols 120 rows 40 && '${process.execPath}' ${script}`;
  const env = { ...(options.env ?? process.env), TERM: "xterm", CI: "" };
  return startProgram(["script", "-qec", line, "/dev/null"], { ...options, env, stdin: null });
}

/** The processes that one has started, by default this one; none if the system does not tell. */
export function childrenOf(pid = process.pid): number[] {
  const file = `/proc/${pid}/task/${pid}/children`;
  return existsSync(file) ? readFileSync(file, "utf8").split(" ").filter(Boolean).map(Number) : [];
}
