import { setTimeout } from "node:timers/promises";
import { type Output, serve } from "./processes.ts";

/** What is known of the command that keeps a server. */
export interface Keeper {
  /** What runs, to be ended with it. */
  running: AsyncDisposableStack;
  /** Where the log is, for people. */
  logName: string;
  say(line: string): void;
  /** Ends the command. */
  fail(message: string): void;
}

/** A server that is started again whenever it fails. */
export interface KeptServer {
  /** Its address, such as `http://localhost:8787`. */
  base: string;
  /** Asks it each minute from now on to do what is due, and whether it answers at all. */
  tickEachMinute(): void;
}

type Server = ReturnType<typeof serve> & {
  /** What became of it, as the words after "The server". */
  fate: string;
};

const READY_PATIENCE_MS = 60_000;
const CRON_MS = 60_000;
/** The sweep of a machine takes less than one of these seconds. */
const ANSWER_PATIENCE_MS = 10_000;
const RETRY_MS = 200;

/**
 * Serves the Worker on `port` for as long as this runs. `wrangler dev` ends when it loses a connection
 * to the Worker; and when its front crashes, it makes another one, which answers nothing. Either way it
 * is started again.
 */
export async function keepServing(
  port: number,
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
      ...serve(port, output, () => isReady && tick(started)),
      fate: "ended",
    };
    running.defer(() => started.stop());
    started.ended.then(async () => {
      if (running.disposed) return;
      if (!isReady) return fail(`The server ended: see ${logName}.`);
      say(`The server ${started.fate}, and is started again (see ${logName}).`);
      server = await startServer();
      say("The server is back.");
    });
    const late = AbortSignal.timeout(READY_PATIENCE_MS);
    late.onabort = () => fail(`The server did not get ready: see ${logName}.`);
    await started.ready;
    isReady = true;
    late.onabort = null;
    return started;
  }

  /** Does what the cron trigger does in production: wrangler does not do it locally. */
  async function tick(asked: Server): Promise<void> {
    const status = await statusOf(`${base}/cdn-cgi/local/scheduled`);
    // One that has ended is being started again; one whose source cannot be built waits until it can.
    if (status === 200 || running.disposed || !asked.isRunning() || asked.isBroken()) return;
    if (status !== null) return say(`The scheduled job failed: see ${logName}.`);
    asked.fate = "does not answer any more";
    await asked.stop();
  }
}

/** The status of an answer; null when there is none in time, however often one asks. */
async function statusOf(url: string): Promise<number | null> {
  const signal = AbortSignal.timeout(ANSWER_PATIENCE_MS);
  while (!signal.aborted)
    try {
      return (await fetch(url, { signal })).status;
    } catch {
      // Refused, as long as a part of the server is being replaced.
      await setTimeout(RETRY_MS, null, { ref: false });
    }
  return null;
}
