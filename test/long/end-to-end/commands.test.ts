import type { SpawnOptions } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { runProgram } from "../../node/support/process.ts";

const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const COMMANDS = [
  ...["start", "platform", "listen", "trigger", "seed", "deploy", "restore", "check-receiver"],
  ...["faults", "simulate", "bench", "openapi"],
];

/** Runs a command as npm does. */
function runCommand(command: string, args: string[] = [], options: SpawnOptions = {}) {
  const env = { ...process.env, npm_lifecycle_event: command, ...options.env };
  return runProgram(["sh", "-c", `${scripts[command]} ${args.join(" ")}`], { ...options, env });
}

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "command-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe.concurrent("every command", () => {
  test.each(COMMANDS)("%s --help shows its usage, and does nothing else", async (command) => {
    const end = await runCommand(command, ["--help"]);
    const call = command === "start" ? "npm start" : `npm run ${command} -- `;
    expect(end.stdout.startsWith(call)).toBe(true);
    expect(end.stdout).toMatch(/^[^\n]+\n\n[A-Z][\s\S]*\n\n {2}\S/);
    expect(end).toMatchObject({ code: 0, stderr: "" });
    if (command === "trigger") expect(await runCommand(command, ["-h"])).toEqual(end);
  });

  test.each([
    ["start", 1],
    ["check-receiver", 2],
  ])("such as %s rejects an unknown option in one sentence", async (command, code) => {
    const stderr = "Unknown option '--frobnicate'; --help shows the usage\n";
    expect(await runCommand(command, ["--frobnicate"])).toEqual({ code, stdout: "", stderr });
  });
});

describe("a folder", () => {
  test("without dependencies is reported by any command in one sentence", async () => {
    for (const part of ["scripts", "src", "test", "bench", "package.json"])
      cpSync(join(ROOT, part), join(folder, part), { recursive: true });
    const stderr = "The dependencies are not installed: run `npm ci` first.\n";
    for (const command of COMMANDS)
      expect(await runCommand(command, [], { cwd: folder })).toMatchObject({ code: 1, stderr });
  });

  // Root may write anywhere, so the command then runs as nobody.
  test.runIf(process.getuid?.() === 0)(
    "is reported in one sentence if it is not writable",
    async () => {
      const env = { ...process.env, HOME: "/nonexistent" };
      const start = [process.execPath, "scripts/start/start.ts"];
      const { code, stderr } = await runProgram(start, { uid: 65_534, env });
      expect(stderr.trimEnd().split("\n").at(-1)).toMatch(
        /^\/\S+ cannot be written to \(EACCES\)\.$/,
      );
      expect(stderr).not.toContain("    at ");
      expect(code).toBe(1);
    },
  );
});
