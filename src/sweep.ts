import { REMOVED_RUNS_MAX_MS } from "./contract/limits.ts";
import { commit, inOrder, openDatabase } from "./db/client.ts";
import { forgetCommits } from "./db/once.ts";
import { sendNotices } from "./delivery/notify.ts";
import { wake } from "./delivery/wake.ts";
import { log, logError } from "./log.ts";
import { overdueAnywhere } from "./model/deliveries.ts";
import { cleanUpAutomations } from "./model/removals.ts";
import { deleteExpired } from "./model/retention.ts";

/**
 * The cron door: wakes what the queues have forgotten, sends the e-mails that are owed and deletes
 * what is past its retention. Each part runs whether or not another failed; a failure is thrown, so
 * that the platform shows the run as failed.
 *
 * @param now Unix milliseconds.
 */
export async function sweep(env: Env, now: number): Promise<void> {
  const db = openDatabase(env.DB);
  const parts = await Promise.allSettled([
    overdueAnywhere(db, now).then(async (overdue) => {
      if (overdue.length === 0) return;
      if (!(await wake(env, overdue))) throw new Error("a queue refused to wake subscriptions");
      log("sweep_woke", { subscriptions: overdue.length });
    }),
    sendNotices(db, env, now),
    cleanUpAutomations(db, Date.now() + REMOVED_RUNS_MAX_MS),
    commit(db, inOrder([deleteExpired(now), forgetCommits(now)])),
  ]);
  const failures = parts.flatMap((part) => (part.status === "rejected" ? [part.reason] : []));
  for (const failure of failures) logError("sweep_failed", failure);
  if (failures.length > 0) throw new Error(`${failures.length} parts of the sweep failed`);
}
