/**
 * Fills a workspace of the running local server, or of a deployed Worker, with leads, through the Platform API:
 *
 *     npm run seed -- --leads 1000000
 *
 * The references of the leads are numbered, so that it can be run again without creating duplicates.
 */
import { RECORDS_MAX } from "../src/contract/limits.ts";
import { fail, openSteps, parseArguments, parseCount } from "./shared/command.ts";
import { readState } from "./shared/local-state.ts";
import { openPlatform, SELECTION } from "./shared/platform-client.ts";
import { numberedLead } from "./shared/sample.ts";
import { print } from "./shared/terminal.ts";

const USAGE = `npm run seed -- --leads N [--workspace wks_… [--remote | --env NAME]]

Records leads 1 to N in the sample workspace of the running local server, or in another one.
Existing leads stay unchanged, so it can be run again. New ones are announced to subscribers, as always.

  --leads N        records leads 1 to N; others stay
  --workspace ID   uses another workspace
  --env NAME       a workspace of the Worker that was deployed with --env NAME
  --remote         a workspace of the deployed Worker: it then has leads of people who do not exist
`;
/** Number of concurrent calls. While one is in the database, the other is on its way; more would gain nothing. */
const CALLS_AT_ONCE = 2;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  leads: { type: "string" },
  workspace: { type: "string" },
  ...SELECTION,
});
const leads = parseCount("--leads", values.leads);
const isLocal = !values.remote && values.env === undefined;
const workspace = values.workspace ?? (isLocal ? readState()?.workspaceId : undefined);
if (!workspace)
  throw new Error(
    isLocal
      ? "There is no sample workspace: run `npm start` to create it, or pass --workspace."
      : "A deployed Worker has no sample workspace: pass --workspace.",
  );
await using platform = await openPlatform(values);
const startedAt = performance.now();
const total = leads.toLocaleString("en-US");
const step = openSteps();
let [next, done] = [1, 0];
try {
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, () => record(workspace)));
} finally {
  step("");
}
const seconds = (performance.now() - startedAt) / 1000;
print(
  `${total} leads in ${seconds.toFixed(1)} s: ` +
    `${Math.round(leads / seconds).toLocaleString("en-US")} leads per second.`,
);

/** Records leads that no other caller has taken, a hundred per call. */
async function record(workspaceId: string): Promise<void> {
  const now = Date.now();
  while (next <= leads) {
    const first = next;
    next += RECORDS_MAX;
    const count = Math.min(RECORDS_MAX, leads - first + 1);
    await platform.call("recordLeads", {
      workspaceId,
      leads: Array.from({ length: count }, (_, i) => numberedLead(first + i, now)),
    });
    done += count;
    step(`${done.toLocaleString("en-US")} of ${total} leads`, 5_000);
  }
}
