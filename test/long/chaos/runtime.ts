/**
 * The runtime that `chaos.test.ts` kills. It reports over IPC where it listens and each fault, and runs
 * the scheduled job often. Calls go to the Worker over HTTP: through Miniflare, this process would wait
 * for the Worker, which in turn waits for it whenever it logs a lot.
 */

import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { SWEEP_GRACE_MS } from "../../../src/webhooks/wake.ts";
import { DATABASES } from "./traffic.ts";

const SWEEP_EVERY_MS = 5_000;

const [persist, wrapper, settings] = process.argv.slice(2);
if (!persist || !wrapper || !settings || !process.send)
  throw new Error("started by chaos.test.ts only");
const { url } = await startRuntime({
  persist,
  wrapper,
  databases: DATABASES.length,
  vars: { QUOTA_REQUESTS: 1_000_000, AUTH_FAILURES: 1_000_000, CHAOS: settings },
  onLog: (line) => {
    if (line.startsWith('{"injected":')) process.send?.(JSON.parse(line));
  },
});
process.on("disconnect", () => process.exit(1));
// A minute ahead, because the sweep leaves alone what is overdue by less.
const sweep = () => {
  const body = JSON.stringify(Date.now() + SWEEP_GRACE_MS);
  fetch(new URL("/chaos/sweep", url), { method: "POST", body }).catch(() => {});
};
setInterval(sweep, SWEEP_EVERY_MS);
process.send({ url: url.href });
