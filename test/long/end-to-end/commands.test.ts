import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { holdFolder } from "../../../scripts/shared/folder-hold.ts";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { copyCheckout, startIn } from "../../node/support/local-server.ts";

const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const COMMANDS = [
  ...["start", "platform", "listen", "trigger", "seed", "deploy", "check-receiver"],
  ...["faults", "simulate", "chaos", "bench", "openapi"],
];

/** Runs a program to its end. */
async function run(
  program: string,
  args: string[],
  { cwd = ROOT, env = {}, uid }: { cwd?: string; env?: NodeJS.ProcessEnv; uid?: number } = {},
) {
  const child = spawn(program, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    ...(uid ? { uid } : {}),
  });
  const end = { code: null as number | null, stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => {
    end.stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    end.stderr += chunk;
  });
  [end.code] = await once(child, "close");
  return end;
}

/** Runs a command as npm does. */
function runCommand(command: string, args: string[], options: Parameters<typeof run>[2] = {}) {
  const line = `${scripts[command]} ${args.join(" ")}`;
  const env = { npm_lifecycle_event: command, ...options.env };
  return run("sh", ["-c", line], { ...options, env });
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

  test.each(COMMANDS)("%s rejects an unknown option in one sentence", async (command) => {
    const { code, stdout, stderr } = await runCommand(command, ["--frobnicate"]);
    expect(stderr).toBe("Unknown option '--frobnicate'; --help shows the usage\n");
    expect(stdout).toBe("");
    expect(code).toBe(command === "check-receiver" ? 2 : 1);
  });

  test.each([
    ["simulate", "--seeds", "many"],
    ["simulate", "--jobs", "0"],
    ["chaos", "--events", "0"],
    ["chaos", "--kills", "-1"],
  ])("%s %s %s: expects a number", async (command, option, value) => {
    const { code, stdout, stderr } = await runCommand(command, [`${option}=${value}`]);
    expect(stderr).toMatch(
      new RegExp(`^${option}: a whole number from \\d on is expected; [^\n]+\n$`),
    );
    expect(stdout).toBe("");
    expect(code).toBe(1);
  });
});

describe("a folder", () => {
  test("without dependencies is reported by any command in one sentence", async () => {
    await run("cp", ["-r", "scripts", "src", "test", "bench", "package.json", folder]);
    for (const command of COMMANDS) {
      const { code, stderr } = await runCommand(command, [], { cwd: folder });
      expect(stderr).toBe("The dependencies are not installed: run `npm ci` first.\n");
      expect(code).toBe(1);
    }
  });

  test("has one start at a time: the second says so and changes nothing", async () => {
    const letGo = await holdFolder(join(ROOT, ".wrangler"), "http://localhost:1");
    const secrets = join(ROOT, ".dev.vars");
    const before = existsSync(secrets) ? statSync(secrets).mtimeMs : null;
    const { code, stderr } = await runCommand("start", [], { env: { PORT: "28787" } });
    letGo();
    expect(stderr).toBe("`npm start` is already running in this folder, on http://localhost:1.\n");
    expect(code).toBe(1);
    expect(existsSync(secrets) ? statSync(secrets).mtimeMs : null).toBe(before);
  });

  test("is held by one of several that start at once", async () => {
    const holds = await Promise.allSettled(["a", "b", "c"].map((at) => holdFolder(folder, at)));
    const held = holds.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    expect(held).toHaveLength(1);
    for (const letGo of held) letGo();
  });

  test("is free once its start has ended or was killed", async () => {
    const letGo = await holdFolder(folder, "first");
    await expect(holdFolder(folder, "second")).rejects.toThrow(
      "is already running in this folder, on first",
    );
    letGo();
    (await holdFolder(folder, "second"))();
    const script = `const { holdFolder } = await import("${join(ROOT, "scripts/shared/folder-hold.ts")}");
      await holdFolder("${folder}", "third");
      console.log("holds");
      setInterval(() => {}, 1_000);`;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", script]);
    await once(child.stdout, "data");
    await expect(holdFolder(folder, "fourth")).rejects.toThrow("on third");
    child.kill("SIGKILL");
    await once(child, "exit");
    (await holdFolder(folder, "fourth"))();
    writeFileSync(join(folder, "start.sock"), "not a socket");
    (await holdFolder(folder, "fifth"))();
  });

  test("whose encryption key has its former name is not started, and stays as it is", async () => {
    const copy = copyCheckout();
    const secrets = 'WEBHOOK_ENCRYPTION_KEYS="k1:old"\n';
    writeFileSync(join(copy, ".dev.vars"), secrets);
    const start = startIn(copy, "start", [], { PORT: "28787" });
    expect(await start.ended).toBe(1);
    expect(start.output()).toBe(
      "WEBHOOK_ENCRYPTION_KEYS is now called ENCRYPTION_KEYS: rename it, and keep its value.\n",
    );
    expect(readFileSync(join(copy, ".dev.vars"), "utf8")).toBe(secrets);
    rmSync(copy, { recursive: true });
  });

  // Root may write anywhere, so the command then runs as nobody.
  test
    .runIf(process.getuid?.() === 0)
    .each([
      ["start/start.ts"],
      ["platform/platform.ts", "ledger"],
      ["openapi/openapi.ts"],
      ["chaos/chaos.ts"],
    ])("that is not writable is reported in one sentence by %s", async (script, ...args) => {
    const call = [`scripts/${script}`, ...args];
    const { code, stderr } = await run(process.execPath, call, {
      uid: 65_534,
      env: { HOME: "/nonexistent" },
    });
    const last = stderr.trimEnd().split("\n").at(-1);
    expect(last).toMatch(/^\/\S+ cannot be written to \(EACCES\)\.$/);
    expect(stderr).not.toContain("    at ");
    expect(code).toBe(1);
  });
});

test.runIf(process.platform === "linux")(
  "npm run platform gives up on a server that does not answer",
  async () => {
    const before = children();
    const runtime = await startRuntime({ registry: folder });
    const servers = children().filter((pid) => !before.includes(pid));
    for (const pid of servers) process.kill(pid, "SIGSTOP");
    const env = { WRANGLER_REGISTRY_PATH: folder };
    const { code, stderr } = await run(
      process.execPath,
      ["scripts/platform/platform.ts", "ledger"],
      {
        env,
      },
    );
    for (const pid of servers) process.kill(pid, "SIGCONT");
    await runtime.stop();
    expect(stderr).toBe(
      "The local server does not answer: stop it, and start it again with `npm start`.\n",
    );
    expect(code).toBe(1);
  },
);

/** The processes that this one has started. */
function children(): number[] {
  const text = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}
