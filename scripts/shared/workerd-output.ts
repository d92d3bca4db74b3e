import { closeSync, mkdtempSync, openSync, readFileSync, readSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";
import { ROOT } from "./checkout.ts";

const READ_EVERY_MS = 20;

/** The files that a runtime prints into. */
export interface WorkerdOutput {
  /** The environment with which the process prints into the pipes. */
  env: Record<string, string>;
  /** The output of the process about itself, such as why it does not start. */
  errors(): string;
  /** Reads the rest, and deletes the files. */
  close(): void;
}

/**
 * Makes each runtime that Miniflare starts print into files instead of pipes, which could block it
 * (scripts/shared/workerd).
 *
 * @param onLine receives what Workers print; without it, that is dropped.
 */
export function openWorkerdOutput(onLine?: (line: string) => void): WorkerdOutput {
  const miniflare = createRequire(join(ROOT, "node_modules/miniflare/package.json"));
  process.env.WORKERD ??= miniflare("workerd").default;
  process.env.MINIFLARE_WORKERD_PATH = join(import.meta.dirname, "workerd");
  const folder = mkdtempSync(join(tmpdir(), "workerd-"));
  const [stdout, stderr] = [join(folder, "stdout"), join(folder, "stderr")];
  for (const file of [stdout, stderr]) closeSync(openSync(file, "w"));
  const followed = onLine ? [stdout, stderr].map((file) => follow(file, onLine)) : [];
  const readAll = () => {
    for (const { read } of followed) read();
  };
  const timer = setInterval(readAll, READ_EVERY_MS).unref();
  return {
    env: { WORKERD_STDOUT: onLine ? stdout : "/dev/null", WORKERD_STDERR: stderr },
    errors: () => readFileSync(stderr, "utf8").trim(),
    close: () => {
      clearInterval(timer);
      readAll();
      for (const { fd } of followed) closeSync(fd);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Passes on the messages of a file of structured logs, each time `read` is called. */
function follow(file: string, onLine: (line: string) => void) {
  const fd = openSync(file, "r");
  const decoder = new StringDecoder("utf8");
  const buffer = Buffer.alloc(65_536);
  let rest = "";
  const read = () => {
    for (let length = readSync(fd, buffer); length > 0; length = readSync(fd, buffer)) {
      const lines = (rest + decoder.write(buffer.subarray(0, length))).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) onLine(messageOf(line));
    }
  };
  return { fd, read };
}

function messageOf(line: string): string {
  try {
    return String(JSON.parse(line).message);
  } catch {
    return line;
  }
}
