/**
 * Prints the alarms of alarms.json, or creates those that Cloudflare's API supports.
 *
 *     npm run alarms
 *     npm run alarms -- --apply --email ops@example.com
 */
import { join } from "node:path";
import { z } from "@hono/zod-openapi";
import { ROOT } from "../shared/checkout.ts";
import { bearer, type Cloudflare, openCloudflare } from "../shared/cloudflare.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { readConfig } from "../shared/databases.ts";
import { print } from "../shared/terminal.ts";
import ALARMS from "./alarms.json" with { type: "json" };

const USAGE = `npm run alarms -- [--env NAME] [--apply --email ADDRESS]

Prints the alarms: when each is raised, and for those on log lines, the query of a Custom Alert.
docs/oncall.md says which of them page the person on call.

  --apply          create or update those that Cloudflare's notifications have: a health check of
                   PORTAL_ORIGIN/health in its zone, and Cloudflare's incidents
  --email ADDRESS  the address that they notify
  --origin URL     the address to check, if PORTAL_ORIGIN is another
  --env NAME       for the Worker that was deployed with --env NAME

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID
                   environment variables that --apply needs. The token needs permission to edit
                   notifications and health checks, and to read the zone. The queries contain the
                   account, or ACCOUNT_ID in its place if the variable is not set
`;

/**
 * An alarm on at least `count` log lines of an event within `minutes`, or on those that the runtime leaves when
 * it ends an invocation with one of `outcomes`.
 */
type LogAlarm = Extract<(typeof ALARMS)[number], { count: number }>;

const Item = z.object({ id: z.string() });
const Items = z.array(Item.extend({ name: z.string() })).nullish();

/**
 * Does what the arguments of `npm run alarms` say.
 *
 * @param env the environment variables.
 * @throws Error that says what is wrong, in words for the user.
 */
export async function alarms(args: string[], env: NodeJS.ProcessEnv): Promise<void> {
  const { values } = parseArguments(
    USAGE,
    {
      env: { type: "string" },
      apply: { type: "boolean", default: false },
      email: { type: "string" },
      origin: { type: "string" },
    },
    { args },
  );
  const { apply: isApplied, email, origin } = values;
  if (isApplied && !email) throw new Error("--apply needs --email ADDRESS");
  const { name, vars } = await readConfig(join(ROOT, "wrangler.toml"), values.env);
  if (isApplied && email)
    await apply(String(name), origin ?? String(vars.PORTAL_ORIGIN), email, env);
  else show(String(name), env);
}

function show(worker: string, { CLOUDFLARE_ACCOUNT_ID: account }: NodeJS.ProcessEnv): void {
  for (const alarm of ALARMS) {
    // The others are conditions that Cloudflare notifies of.
    const isOnLog = alarm.page === undefined;
    print(`${alarm.name}: ${isOnLog ? conditionOf(alarm) : alarm.page}`);
    if (isOnLog) print(`  ${queryOf(worker, alarm, account || "ACCOUNT_ID")}`);
  }
  if (!account) print("\nReplace ACCOUNT_ID in the queries with the id of your account.");
  print("\nWhat to do: docs/runbook.md.");
}

function conditionOf({ count, minutes }: LogAlarm): string {
  return `threshold >= ${count}, evaluation window ${minutes} minutes, of`;
}

/**
 * The query of a Custom Alert, in the dialect of Cloudflare's SQL API. A row stands for `sampleInterval` lines,
 * as Cloudflare samples them when there are many.
 */
function queryOf(worker: string, { name, minutes, outcomes }: LogAlarm, account: string): string {
  const quoted = (outcomes ?? []).map((outcome) => `'${outcome}'`).join(", ");
  const condition = outcomes
    ? `attributes['$workers.outcome'] IN (${quoted})`
    : `attributes['event'] = '${name}'`;
  return `SELECT SUM(sampleInterval) AS value FROM logs.workersLogs WHERE accountTag = '${account}' AND scriptName = '${worker}' AND ${condition} AND timestamp >= NOW() - INTERVAL '${minutes}' MINUTE`;
}

/** Creates or updates the notifications. @throws Error if the API rejects a call. */
async function apply(
  worker: string,
  origin: string,
  email: string,
  env: NodeJS.ProcessEnv,
): Promise<void> {
  if (!URL.canParse(origin))
    throw new Error("Set PORTAL_ORIGIN in wrangler.toml: the health check needs the address.");
  const { CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID } = env;
  if (!CLOUDFLARE_API_TOKEN || !CLOUDFLARE_ACCOUNT_ID)
    throw new Error("Set CLOUDFLARE_API_TOKEN and CLOUDFLARE_ACCOUNT_ID.");
  const { hostname } = new URL(origin);
  const cloudflare = openCloudflare(CLOUDFLARE_ACCOUNT_ID, bearer(CLOUDFLARE_API_TOKEN), env);
  const zoneId = await findZone(cloudflare, hostname);
  const checkId = await put(cloudflare, `//zones/${zoneId}/healthchecks`, {
    name: `${worker}-health`,
    address: hostname,
    type: "HTTPS",
    interval: 60,
    timeout: 10,
    retries: 1,
    consecutive_fails: 3,
    consecutive_successes: 1,
    http_config: { method: "GET", path: "/health", port: 443, expected_codes: ["200"] },
  });
  const notify = (name: string, alert_type: string, filters: object) =>
    put(cloudflare, "/alerting/v3/policies", {
      name: `${worker}: ${name}`,
      description: `docs/runbook.md, ${name}`,
      enabled: true,
      alert_type,
      filters,
      mechanisms: { email: [{ id: email }] },
    });
  await notify("health", "health_check_status_notification", {
    health_check_id: [checkId],
    status: ["Unhealthy", "Healthy"],
  });
  await notify("incident", "incident_alert", {
    incident_impact: ["INCIDENT_IMPACT_MAJOR", "INCIDENT_IMPACT_CRITICAL"],
  });
  print(`${email} is notified if ${hostname} is not healthy, and of Cloudflare's incidents.`);
  print("The alarms on log lines are up to you: npm run alarms prints them.");
}

/** Creates what has this name in a list, or replaces it. @returns its id. */
async function put(
  { call }: Cloudflare,
  path: string,
  item: { name: string; [field: string]: unknown },
): Promise<string> {
  const listed = await call(Items, "GET", `${path}?per_page=1000`);
  const existing = listed?.find(({ name }) => name === item.name);
  const { id } = existing
    ? await call(Item, "PUT", `${path}/${existing.id}`, item)
    : await call(Item, "POST", path, item);
  return id;
}

/** The id of the zone that a host is in. @throws Error if the account has none. */
async function findZone({ call, accountId }: Cloudflare, hostname: string): Promise<string> {
  const labels = hostname.split(".");
  for (let i = 0; i < labels.length - 1; i++) {
    const name = labels.slice(i).join(".");
    const path = `//zones?name=${name}&account.id=${accountId}`;
    const [zone] = (await call(Items, "GET", path)) ?? [];
    if (zone) return zone.id;
  }
  throw new Error(`The account has no zone for ${hostname}: a health check needs one.`);
}

if (import.meta.main) {
  process.on("uncaughtException", fail);
  await alarms(process.argv.slice(2), process.env);
}
