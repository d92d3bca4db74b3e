import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { callMethod } from "../../../scripts/platform/call.ts";
import { print } from "../../../scripts/shared/terminal.ts";
import { serverFileIn, shareWithCommands } from "./local-runtime.ts";
import { platformOf } from "./platform-here.ts";
import { runHere, runProgram, startInTerminal } from "./process.ts";

/** Opens a server, and the commands that find it. The caller closes it. */
export async function openPlatformCommand() {
  const folder = mkdtempSync(join(tmpdir(), "command-"));
  const runtime = await shareWithCommands(folder);
  const env = { ...process.env, LOCAL_SERVER_FILE: serverFileIn(folder) };
  const run =
    (script: string, stdin = "", more: NodeJS.ProcessEnv = {}) =>
    (...args: string[]) =>
      runProgram([process.execPath, `scripts/${script}`, ...args], {
        env: { ...env, ...more },
        stdin,
      });
  return {
    runtime,
    /** A folder for files. */
    folder,
    seed: run("seed.ts"),
    platform: run("platform/platform.ts"),
    /** Does what `npm run platform` does, in this process, which is quicker. */
    platformHere: (...args: string[]) =>
      runHere(async () => {
        const answer = await callMethod(args, async () => platformOf(runtime));
        if (answer !== null) print(answer);
      }),
    /** Runs `npm run platform` with this standard input. */
    platformWith: (stdin: string, ...args: string[]) => run("platform/platform.ts", stdin)(...args),
    /** Runs `npm run platform` with other variables. */
    platformIn: (more: NodeJS.ProcessEnv, ...args: string[]) =>
      run("platform/platform.ts", "", more)(...args),
    /** Runs a script to its end in a terminal. */
    inTerminal: (script: string) => startInTerminal(`scripts/${script}`, { env }).ended,
    async makeWorkspace(): Promise<string> {
      const { workspaceId } = await runtime.env.PLATFORM.createWorkspace({ name: "Agence" });
      return workspaceId;
    },
    countLeads: (workspaceId: string) =>
      runtime.env.DB.prepare("SELECT count(*) AS n FROM leads WHERE workspace_id = ?")
        .bind(workspaceId)
        .first<number>("n"),
    close: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/**
 * Does what `npm run platform` does, in this process, which is quicker: for a call that fails. @returns the sentence
 * with which it stops.
 */
export function refusalOf(...args: string[]): Promise<string> {
  return callMethod(args).then(
    () => expect.unreachable("it was called"),
    (error: Error) => error.message,
  );
}
