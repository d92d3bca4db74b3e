import { setTimeout } from "node:timers/promises";
import { type Output, serve } from "./processes.ts";
import type { UrlRules } from "./url-rules.ts";

/** The command that keeps a server running. */
export interface Keeper {
  /** Disposed of when the command ends. */
  running: AsyncDisposableStack;
  /** The path of the log, as shown to people. */
  logName: string;
  say(line: string): void;
  /** Ends the command. */
  fail(message: string): void;
}

/** A server that is restarted whenever it fails. */
export interface KeptServer {
  /** Its address, such as `http://localhost:8787`. */
  base: string;
  /** From now on, calls its cron job every minute, which also checks that it answers. */
  tickEachMinute(): void;
}

type Server = ReturnType<typeof serve> & {
  /** How it ended, as said after "The server". */
  fate: string;
};

const READY_PATIENCE_MS = 60_000;
const CRON_MS = 60_000;
/** A local sweep takes less than a second. */
const ANSWER_PATIENCE_MS = 10_000;
const RETRY_MS = 200;

/**
 * Serves the Worker on `port` for as long as this command runs. `wrangler dev` ends if it loses its
 * connection to the Worker. If its proxy crashes, it starts another one, which does not answer. In both
 * cases it is restarted.
 */
export async function keepServing(
  port: number,
  rules: UrlRules,
  output: Output,
  { running, logName, say, fail }: Keeper,
): Promise<KeptServer> {
  const base = `http://localhost:${port}`;
  let server = await startServer();
  return {
    base,
    tickEachMinute() {
      const timer = setInterval(() => tick(server), CRON_MS);
      running.defer(() => clearInterval(timer));
      void tick(server);
    },
  };

  async function startServer(): Promise<Server> {
    let isReady = false;
    const started: Server = {
      ...serve(port, rules, output, () => isReady && tick(started)),
      fate: "ended",
    };
    running.defer(() => started.stop());
    started.ended.then(async () => {
      if (running.disposed) return;
      if (!isReady) return fail(`The server ended: see ${logName}.`);
      say(`The server ${started.fate}; restarting it (see ${logName}).`);
      server = await startServer();
      say("The server is back.");
    });
    const late = AbortSignal.timeout(READY_PATIENCE_MS);
    late.onabort = () => fail(`The server did not become ready: see ${logName}.`);
    await started.ready;
    isReady = true;
    late.onabort = null;
    return started;
  }

  /** Calls the cron job, which wrangler does not do locally. */
  async function tick(asked: Server): Promise<void> {
    const status = await statusOf(`${base}/cdn-cgi/local/scheduled`);
    // If it has ended, it is being restarted; if its source does not build, it answers once it does.
    if (status === 200 || running.disposed || !asked.isRunning() || asked.isBroken()) return;
    if (status !== null) return say(`The scheduled job failed: see ${logName}.`);
    asked.fate = "stopped answering";
    await asked.stop();
  }
}

/** The status of the answer; null if there is none in time, even after retries. */
async function statusOf(url: string): Promise<number | null> {
  const signal = AbortSignal.timeout(ANSWER_PATIENCE_MS);
  while (!signal.aborted)
    try {
      return (await fetch(url, { signal })).status;
    } catch {
      // Connections are refused while a part of the server is being replaced.
      await setTimeout(RETRY_MS, null, { ref: false });
    }
  return null;
}
