import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";

/** The result of a command. */
export interface End {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Starts a server, and the commands that find it. The caller closes it. */
export async function openPlatformCommand() {
  const registry = mkdtempSync(join(tmpdir(), "registry-"));
  const runtime: Runtime = await startRuntime({ registry });

  function run(command: string[], env: NodeJS.ProcessEnv = {}, stdin = ""): Promise<End> {
    const [program = "", ...args] = command;
    const child = spawn(program, args, {
      cwd: ROOT,
      env: { ...process.env, WRANGLER_REGISTRY_PATH: registry, ...env },
      stdio: ["pipe", "pipe", "pipe"],
    });
    // A command that does not read its input may already have ended.
    child.stdin.on("error", () => {}).end(stdin);
    const end: End = { code: null, stdout: "", stderr: "" };
    child.stdout.on("data", (chunk) => {
      end.stdout += chunk;
    });
    child.stderr.on("data", (chunk) => {
      end.stderr += chunk;
    });
    return new Promise((resolve) => child.on("close", (code) => resolve({ ...end, code })));
  }

  const script = [process.execPath, "scripts/platform/platform.ts"];
  return {
    runtime,
    registry,
    run,
    platform: (...args: string[]) => run([...script, ...args]),
    /** Runs the command with this standard input. */
    platformWith: (stdin: string, ...args: string[]) => run([...script, ...args], {}, stdin),
    /** Runs a script in a terminal, which Debian's `script` provides. */
    inTerminal(command: string): Promise<End> {
      const line = `stty cols 120 rows 40 && '${process.execPath}' ${command}`;
      return run(["script", "-qec", line, "/dev/null"], { TERM: "xterm", CI: "" });
    },
    async makeWorkspace(): Promise<string> {
      const { workspaceId } = await runtime.env.PLATFORM.createWorkspace({ name: "Agence" });
      return workspaceId;
    },
    async countLeads(workspaceId: string): Promise<number> {
      const query = "SELECT count(*) AS n FROM leads WHERE workspace_id = ?";
      const row = await runtime.env.DB.prepare(query).bind(workspaceId).first<{ n: number }>();
      return row?.n ?? -1;
    },
    async close(): Promise<void> {
      await runtime.stop();
      rmSync(registry, { recursive: true, force: true });
    },
  };
}
