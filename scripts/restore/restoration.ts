import { existsSync, readFileSync, renameSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { callUntilDone, isUntilDone } from "../platform/long-calls.ts";
import { type Cloudflare, findCloudflare, NOT_LOGGED_IN } from "../shared/cloudflare.ts";
import { databasesIn, readConfig } from "../shared/databases.ts";
import type { PlatformClient } from "../shared/platform-client.ts";
import { writePrivateFile } from "../shared/private-file.ts";
import { findQueues } from "../shared/queues.ts";
import { withoutSecrets } from "../shared/secrets.ts";
import { print } from "../shared/terminal.ts";
import { openWrangler } from "../shared/wrangler.ts";
import { type Options, SETTINGS } from "./options.ts";
import { findPlacements, type Placements, settlePlacements } from "./placements.ts";
import { callsToRepeat, type PlatformCall } from "./repeat.ts";
import { type Compared, MARK_KEYS_USED, putBackStatements, rowsToPutBack } from "./rows.ts";
import {
  CLOCKS_DIFFER_MS,
  type Databases,
  literal,
  openDatabases,
  query,
  readTables,
  TABLES,
  type Tables,
} from "./tables.ts";

/** The actor of the calls of a restore in the audit trail. */
const ACTOR = "npm run restore";

/** The context of the steps of a restore. */
interface Restore extends Databases {
  options: Options;
  cloudflare: Cloudflare;
  /** The restored time, in ISO 8601. */
  time: string;
  /** The queues of deliveries. */
  queues: string[];
}

/** The notes of a restore, in a file that only its user can read. A run that continues does no step twice. */
interface Notes {
  /** The bookmark of the database before the restore, which undoes it. */
  bookmark: string;
  /** The tables with the decisions of people, before the restore. */
  tables: Tables;
  /** Where workspaces live, as found when the database had gone back; null before. */
  placements: Placements | null;
  /** The calls that are still to be repeated; null until the rows have been put back. */
  calls: PlatformCall[] | null;
}

/** The notes of a finished restore: without secrets, and enough to undo it. They keep the command from doing it again. */
type Finished = Pick<Notes, "bookmark"> & { finished: true };

/** Replaces the notes atomically. */
export function writeNotes(file: string, notes: Notes | Finished): void {
  writePrivateFile(`${file}.new`, JSON.stringify(notes));
  renameSync(`${file}.new`, file);
}

/**
 * Restores a database, or continues a restore that failed.
 *
 * @param openPlatform opens the Platform API of the deployment, once the database is restored.
 * @throws Error that names the step that failed; the same call continues.
 */
export async function restore(
  options: Options,
  environment: NodeJS.ProcessEnv,
  openPlatform: () => Promise<PlatformClient>,
): Promise<void> {
  const config = await readConfig(options.configFile, options.environment);
  const databases = databasesIn(config);
  const found = databases.find(({ binding }) => binding === options.database);
  if (!found) throw new Error(`wrangler.toml binds no database as ${options.database}`);
  const time = options.at.toISOString();
  const env = withoutSecrets(environment);
  const cloudflare = await findCloudflare(
    openWrangler(env, options.everyCall),
    env,
    config.account_id,
  );
  if (!cloudflare) throw new Error(`${NOT_LOGGED_IN}.`);
  const opened = await openDatabases(cloudflare, databases);
  const { execute } = opened;
  const restore = { ...opened, options, cloudflare, time, queues: queuesOf(config) };
  const stamp = time.replaceAll(/[:.]/g, "-");
  const file = join(
    env.HOME ?? homedir(),
    `${config.name}.restore-${options.database}-${stamp}.json`,
  );

  const begun: Notes | Finished | null = existsSync(file)
    ? JSON.parse(readFileSync(file, "utf8"))
    : null;
  if (begun && "finished" in begun)
    throw new Error(`This restore is finished. To do it once more, delete ${file} first.`);
  let notes = begun && (await hasGoneBack(restore)) ? begun : null;
  if (!notes) await refuseWhileMoving(restore);
  if (begun) print(`Continuing with what ${file} has noted.`);
  else await confirm(restore, found.name, file);
  if (!notes) {
    await setPaused(restore, true);
    // Earlier notes are out of date, because people may have made changes since then.
    await mark(restore);
    notes = await takeNotes(restore);
    writeNotes(file, notes);
    print(`Noted what has been decided: ${file}`);
    await opened.goBack(options.database, time);
    print(`Restored ${options.database} to ${time}.`);
  }
  await opened.migrate(options.database);
  const { tables, bookmark } = notes;
  const placements =
    notes.placements ??
    (await findPlacements(execute, options.database, tables, options.at.getTime()));
  notes = { ...notes, placements };
  writeNotes(file, notes);
  if (notes.calls === null) {
    await settlePlacements(execute, placements);
    await putBack(restore, tables, placements);
    await query(execute, options.database, MARK_KEYS_USED);
    const compared = await compare(restore, tables, placements);
    // A run that continues makes no call that this one skips.
    notes = { ...notes, calls: wanted(callsToRepeat(compared, Date.now()), options) };
    writeNotes(file, notes);
  }
  await repeat(wanted(notes.calls ?? [], options), openPlatform, (calls) =>
    writeNotes(file, { ...notes, calls }),
  );
  await setPaused(restore, false);
  writeNotes(file, { bookmark, finished: true });
  // Calls that had not ended at that time are lost, too.
  const reportedSince = new Date(options.at.getTime() - CLOCKS_DIFFER_MS).toISOString();
  print(
    [
      `Restored ${found.name} to ${time}. Left to do:`,
      `Let the platform report again what has happened since ${reportedSince}: automations, leads, runs.`,
      ...placements.movedHere.map(
        (id) =>
          `${id} has moved to ${options.database} since then, and its records are in no database. Undo the restore and choose a time after the move, or let the platform report them all again.`,
      ),
      "Look in the audit trail (docs/admin.md, Audit trail) for calls of others during the restore, and whether they still hold.",
      ...(options.skip.includes(SETTINGS)
        ? [
            "Look there for webhooks, keys and limits that were created or changed since then: they are gone, or as they were. A secret that was rotated signs again, so rotate it.",
          ]
        : []),
      `Look at the service: npm run platform -- ${options.selection} health`,
      `To undo the restore: npx wrangler d1 time-travel restore ${options.database} --bookmark=${bookmark} ${options.everyCall.join(" ")}`,
    ].join("\n  - "),
  );
}

/** The calls of methods that are not skipped. */
const wanted = (calls: PlatformCall[], { skip }: Options) =>
  calls.filter(({ method }) => !skip.includes(method));

/** The row of `sweep_positions` that marks a database, by the restored time, which is before the mark. */
const markOf = (time: string) => literal(`restore ${time}`);

/**
 * Marks a database before it goes back. Time Travel removes the mark, so a restore that was interrupted knows whether the
 * database has gone back. A bookmark does not tell: it grows in any case.
 */
async function mark({ options, execute, time }: Restore): Promise<void> {
  const sql = `INSERT INTO sweep_positions (part, position) VALUES (${markOf(time)}, '') ON CONFLICT DO NOTHING`;
  await query(execute, options.database, sql);
}

/** Whether Time Travel has taken the database back, which a run that was interrupted may not have noted. */
async function hasGoneBack({ options, execute, time }: Restore): Promise<boolean> {
  const sql = `SELECT part FROM sweep_positions WHERE part = ${markOf(time)}`;
  return (await query(execute, options.database, sql)).length === 0;
}

/** @throws Error if a workspace is being moved. */
async function refuseWhileMoving({ execute }: Restore): Promise<void> {
  const [moving] = await query(execute, "DB", "SELECT workspace_id FROM moves LIMIT 1");
  if (moving) throw new Error(`${moving.workspace_id} is being moved: restore when that is done.`);
}

/** Shows the steps, and asks for confirmation. @throws Error unless the answer is yes. */
async function confirm(restore: Restore, name: string, file: string): Promise<void> {
  const { options, execute, time, cloudflare, queues } = restore;
  const arePaused = (await findQueues(cloudflare, queues)).some(({ isPaused }) => isPaused);
  const tables = await readTables(execute, options.database, options.at.getTime());
  const calls = Map.groupBy(tables.audit_trail, ({ method }) => String(method));
  const counts = [...calls].map(([method, rows]) => `${method} ${rows.length}`);
  const moved = tables.audit_trail.some(({ method }) => method === "moveWorkspace");
  print(
    [
      `Restores ${name} (${options.database}) of ${options.environment ?? "production"} to ${time}:`,
      `Leads, runs, automations, events and deliveries go back to that time.`,
      `Workspaces, API keys, webhooks and the audit trail stay as they are now (noted in ${file}).`,
      `Deliveries are paused, and resumed at the end. Until it is done, keys that were revoked since then are valid.`,
      `Calls of the Platform API and changes in the portal since then: ${counts.join(", ") || "none"}.`,
      ...(arePaused
        ? [
            "Deliveries are paused already, on purpose or by another restore: read docs/restoring.md, Is one in progress, before you go on.",
          ]
        : []),
      ...(moved
        ? [
            "Workspaces were moved since then: read docs/restoring.md, Several databases, before you go on.",
          ]
        : []),
      ...(options.skip.length > 0 ? [`Not repeated: ${options.skip.join(", ")}.`] : []),
    ].join("\n  - "),
  );
  if (options.yes) return;
  if (!process.stdin.isTTY) throw new Error("Nothing was changed. Add --yes to go on.");
  using terminal = createInterface(process.stdin, process.stdout);
  const answer = await terminal.question("Go on? (y/N) ");
  if (!/^y(es)?$/i.test(answer.trim())) throw new Error("Nothing was changed.");
}

async function takeNotes({ options, execute, bookmark }: Restore): Promise<Notes> {
  const { database, at } = options;
  const now = await bookmark(database);
  const tables = await readTables(execute, database, at.getTime());
  return { bookmark: now, tables, placements: null, calls: null };
}

async function setPaused({ cloudflare, queues }: Restore, isPaused: boolean): Promise<void> {
  for (const { name, id } of await findQueues(cloudflare, queues)) {
    if (id === null) throw new Error(`The account has no queue ${name}.`);
    const body = { queue_name: name, settings: { delivery_paused: isPaused } };
    await cloudflare.call(z.unknown(), "PATCH", `/queues/${id}`, body);
  }
  print(isPaused ? "Paused deliveries." : "Resumed deliveries.");
}

/** Reads the tables as they are now. */
async function compare(
  { options, execute }: Restore,
  noted: Tables,
  placements: Placements,
): Promise<Compared> {
  const restoredTo = options.at.getTime();
  const found = await readTables(execute, options.database, restoredTo);
  return { noted, found, placements, restoredTo, skipsSettings: options.skip.includes(SETTINGS) };
}

async function putBack(restore: Restore, noted: Tables, placements: Placements): Promise<void> {
  const { options, execute } = restore;
  const compared = await compare(restore, noted, placements);
  for (const table of TABLES) {
    const rows = rowsToPutBack(table, compared);
    // The audit trail is in `DB`, so the restore of another database has lost none of it.
    for (const statement of putBackStatements(table, rows))
      await query(execute, options.database, statement);
    if (rows.length > 0) print(`Put back ${rows.length} rows of ${table}.`);
  }
}

/**
 * Makes the calls that are left.
 *
 * @param note is told the calls that are left, after each one that has succeeded.
 * @throws Error that names the calls that failed.
 */
async function repeat(
  calls: PlatformCall[],
  openPlatform: () => Promise<PlatformClient>,
  note: (left: PlatformCall[]) => void,
): Promise<void> {
  if (calls.length === 0) return;
  await using platform = await openPlatform();
  const left = new Map<PlatformCall, string>();
  for (const [i, call] of calls.entries()) {
    const shown = `${call.method} ${JSON.stringify(call.input)}`;
    try {
      await make(platform, call);
      print(`Repeated ${shown}`);
    } catch (error) {
      left.set(call, `${shown}: ${(error as Error).message}`);
    }
    note([...left.keys(), ...calls.slice(i + 1)]);
  }
  if (left.size > 0)
    throw new Error(
      [
        "These calls failed; deliveries stay paused. Run the command again, or leave a method out with --skip:",
        ...left.values(),
      ].join("\n  "),
    );
}

/**
 * Makes a call. A key may have ended since its call was planned, and then has no rate limit to change. Its gate may still
 * have cached that it is valid, so it is revoked instead, unless it was erased.
 */
async function make(platform: PlatformClient, { method, input }: PlatformCall): Promise<void> {
  const given = { ...input, actor: ACTOR };
  try {
    if (isUntilDone(method)) await callUntilDone(platform, method, given as never);
    else await platform.call(method, given as never);
  } catch (error) {
    if (!(error as Error).message.includes("no such key")) throw error;
    if (method === "updateApiKey")
      await make(platform, { method: "revokeApiKey", input: { keyId: input.keyId } });
    else if (method !== "revokeApiKey") throw error;
  }
}

/** Returns the names of the queues of deliveries. */
function queuesOf({ queues }: Unstable_Config): string[] {
  const isOfDeliveries = (binding: string) => ["DELIVERIES", "SLOW_DELIVERIES"].includes(binding);
  return (queues.producers ?? []).flatMap(({ binding, queue }) =>
    isOfDeliveries(binding) && queue ? [queue] : [],
  );
}
