import { readFileSync, writeFileSync } from "node:fs";
import { parentPort } from "node:worker_threads";

/** What the watched thread does next, and how long that may take. */
export interface Watched {
  name: string;
  limitMs: number;
}

let timer: NodeJS.Timeout;

parentPort?.on("message", ({ name, limitMs }: Watched) => {
  clearTimeout(timer);
  timer = setTimeout(() => end(name, limitMs), limitMs);
});

function end(name: string, limitMs: number): void {
  const processes = descendantsOf(process.pid);
  const lines = processes.map(({ pid, depth }) => "  ".repeat(depth) + describe(pid));
  const text = `WATCHDOG: ${name}: no end within ${Math.round(limitMs / 1000)} s\n${lines.join("\n")}\n`;
  // Not through `process.stderr`, which the blocked thread would have to write to.
  writeFileSync(2, text);
  for (const { pid } of processes.toReversed()) process.kill(pid, "SIGKILL");
}

/** A process and those that it has started. */
function descendantsOf(pid: number, depth = 1): { pid: number; depth: number }[] {
  const children = read(pid, `task/${pid}/children`).split(" ").map(Number).filter(Boolean);
  return [{ pid, depth }, ...children.flatMap((child) => descendantsOf(child, depth + 1))];
}

/** What the first thread of a process waits for in the kernel, and what it runs. */
function describe(pid: number): string {
  const command = read(pid, "cmdline").replaceAll("\0", " ").slice(0, 120);
  return `${pid} waits in ${read(pid, "wchan")}: ${command}`;
}

/** A file of `/proc`; empty if the system does not tell. */
function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return "";
  }
}
