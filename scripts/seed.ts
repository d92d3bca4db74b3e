/**
 * Fills a workspace of the running local server, or of a deployed Worker, with leads, through the Platform API:
 *
 *     npm run seed -- --leads 1000000
 *
 * Their references are numbered, so that running it again creates no duplicates; after an
 * interruption, `--from` skips existing ones.
 */
import { RECORDS_MAX } from "../src/contract/limits.ts";
import { fail, openSteps, parseArguments, parseCount } from "./shared/command.ts";
import { readState } from "./shared/local-state.ts";
import { openPlatform, type PlatformClient, SELECTION } from "./shared/platform-client.ts";
import { numberedLead } from "./shared/sample.ts";
import { print } from "./shared/terminal.ts";

const USAGE = `npm run seed -- --leads N [--from N] [--workspace wks_… [--remote | --env NAME]]

Records leads number 1 to N in the sample workspace of the running local server, or in another one.
Existing leads stay unchanged. New ones are announced to subscribers, as always.

  --leads N        total number of leads
  --from N         starts with this one, after an interruption
  --workspace ID   uses another workspace
  --env NAME       one of the Worker that was deployed with --env NAME
  --remote         one of the deployed Worker: these are people who do not exist
`;
/** While one is in the database, the other is on its way; more would gain nothing. */
const CALLS_AT_ONCE = 2;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  leads: { type: "string" },
  from: { type: "string", default: "1" },
  workspace: { type: "string" },
  ...SELECTION,
});
const leads = parseCount("--leads", values.leads);
const from = parseCount("--from", values.from);
if (from > leads) throw new Error(`--from: ${from} lies beyond --leads ${leads}`);
const isLocal = !values.remote && values.env === undefined;
const workspace = values.workspace ?? (isLocal ? readState()?.workspaceId : undefined);
if (!workspace)
  throw new Error(
    isLocal
      ? "There is no sample workspace: run `npm start` to create it, or pass --workspace."
      : "A deployed Worker has no sample workspace: pass --workspace.",
  );
await seed(workspace, from, leads);

async function seed(workspaceId: string, from: number, last: number): Promise<void> {
  await using platform = await openPlatform(values);
  const startedAt = performance.now();
  const leads = last - from + 1;
  const total = leads.toLocaleString("en-US");
  const step = openSteps();
  let done = 0;
  try {
    await recordAll(platform, workspaceId, from, last, (count) => {
      done += count;
      step(`${done.toLocaleString("en-US")} of ${total} leads`, 5_000);
    });
  } finally {
    step("");
  }
  const seconds = (performance.now() - startedAt) / 1000;
  print(
    `${total} leads in ${seconds.toFixed(1)} s: ` +
      `${Math.round(leads / seconds).toLocaleString("en-US")} leads per second.`,
  );
}

/** @throws Error that says from where to continue. */
async function recordAll(
  platform: PlatformClient,
  workspaceId: string,
  from: number,
  last: number,
  onRecorded: (count: number) => void,
): Promise<void> {
  const now = Date.now();
  let next = from;
  /** The first leads of the calls that are in progress or have failed. */
  const open = new Set<number>();
  let failure: unknown = null;
  const caller = async () => {
    while (next <= last && failure === null) {
      const first = next;
      const count = Math.min(RECORDS_MAX, last - first + 1);
      next += count;
      open.add(first);
      try {
        const leads = Array.from({ length: count }, (_, i) => numberedLead(first + i, now));
        await platform.call("recordLeads", { workspaceId, leads });
        open.delete(first);
        onRecorded(count);
      } catch (error) {
        failure ??= error;
      }
    }
  };
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, caller));
  if (failure === null) return;
  const reason = failure instanceof Error ? failure.message : String(failure);
  const reached = Math.min(...open);
  throw new Error(
    reached === from
      ? reason
      : `${reason}\nAll leads before ${reached} are recorded: --from ${reached}`,
  );
}
