/**
 * The alarms that page, of alarms.json: prints them, or creates those that Cloudflare's API has.
 *
 *     npm run alarms
 *     npm run alarms -- --apply --email ops@example.com
 */
import { join } from "node:path";
import { z } from "@hono/zod-openapi";
import { ROOT } from "../shared/checkout.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { readConfig } from "../shared/databases.ts";
import { print } from "../shared/terminal.ts";
import ALARMS from "./alarms.json" with { type: "json" };

const USAGE = `npm run alarms -- [--env NAME] [--apply --email ADDRESS]

Prints the alarms that page somebody: when, and for those on log lines, the query of a Custom Alert.

  --apply          create or update those that Cloudflare's notifications have: a health check of
                   PORTAL_ORIGIN/health in its zone, and Cloudflare's incidents
  --email ADDRESS  whom they notify
  --origin URL     the address to check, if PORTAL_ORIGIN is another
  --env NAME       for the Worker that was deployed with --env NAME

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID
                   environment variables that --apply needs, the token with permission to edit
                   notifications and health checks; the account is also part of the queries
`;

/** An alarm on at least `count` log lines of an event within `minutes`. */
type LogAlarm = Extract<(typeof ALARMS)[number], { count: number }>;

const Answer = z.object({
  success: z.boolean(),
  errors: z.array(z.object({ message: z.string() })).nullish(),
  result: z.unknown().optional(),
});
const Named = z.object({ id: z.string(), name: z.string() });
const { CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID } = process.env;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  env: { type: "string" },
  apply: { type: "boolean", default: false },
  email: { type: "string" },
  origin: { type: "string" },
});
const { name, vars } = await readConfig(join(ROOT, "wrangler.toml"), values.env);
if (!values.apply) show(String(name));
else if (!values.email) throw new Error("--apply needs --email ADDRESS");
else await apply(String(name), values.origin ?? String(vars.PORTAL_ORIGIN), values.email);

function show(worker: string): void {
  for (const alarm of ALARMS) {
    // The others are conditions that Cloudflare notifies of.
    const isOnLog = alarm.page === undefined;
    print(`${alarm.name}: ${isOnLog ? conditionOf(alarm) : alarm.page}`);
    if (isOnLog) print(`  ${queryOf(worker, alarm)}`);
  }
  print("\nWhat to do: docs/operations.md, Alarms.");
}

function conditionOf({ count, minutes }: LogAlarm): string {
  return `threshold >= ${count}, evaluation window ${minutes} minutes, of`;
}

/** The query of a Custom Alert, in the dialect of Cloudflare's SQL API. */
function queryOf(worker: string, { name, minutes }: LogAlarm): string {
  const account = CLOUDFLARE_ACCOUNT_ID ?? "ACCOUNT_ID";
  return `SELECT COUNT(*) AS value FROM logs.workersLogs WHERE accountTag = '${account}' AND scriptName = '${worker}' AND attributes['event'] = '${name}' AND timestamp >= NOW() - INTERVAL '${minutes}' MINUTE`;
}

/** Creates or updates the notifications. @throws Error if the API refuses. */
async function apply(worker: string, origin: string, email: string): Promise<void> {
  if (!URL.canParse(origin))
    throw new Error("Set PORTAL_ORIGIN in wrangler.toml: the health check needs the address.");
  if (!CLOUDFLARE_API_TOKEN || !CLOUDFLARE_ACCOUNT_ID)
    throw new Error("Set CLOUDFLARE_API_TOKEN and CLOUDFLARE_ACCOUNT_ID.");
  const { hostname } = new URL(origin);
  const checkId = await put(`/zones/${await findZone(hostname)}/healthchecks`, {
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
    put(`/accounts/${CLOUDFLARE_ACCOUNT_ID}/alerting/v3/policies`, {
      name: `${worker}: ${name}`,
      description: "docs/operations.md, Alarms",
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

/** Calls Cloudflare's API, as wrangler has no command for these parts of it. */
async function call(method: string, path: string, body?: object): Promise<unknown> {
  const base = process.env.CLOUDFLARE_API_BASE_URL ?? "https://api.cloudflare.com/client/v4";
  const response = await fetch(base + path, {
    method,
    headers: {
      Authorization: `Bearer ${CLOUDFLARE_API_TOKEN}`,
      "Content-Type": "application/json",
    },
    ...(body && { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(30_000),
  });
  const answer = Answer.safeParse(await response.json().catch(() => null));
  if (answer.data?.success) return answer.data.result;
  const reasons = answer.data?.errors?.map(({ message }) => message).join("; ");
  throw new Error(`Cloudflare refuses ${method} ${path}: ${reasons || response.status}`);
}

async function list(path: string) {
  return z.array(Named).parse((await call("GET", path)) ?? []);
}

/** Creates what has this name in a list, or replaces it. @returns its id. */
async function put(path: string, item: { name: string; [field: string]: unknown }) {
  const existing = (await list(`${path}?per_page=1000`)).find(({ name }) => name === item.name);
  const result = existing
    ? await call("PUT", `${path}/${existing.id}`, item)
    : await call("POST", path, item);
  return z.object({ id: z.string() }).parse(result).id;
}

/** The id of the zone that a host is in. @throws Error if the account has none. */
async function findZone(hostname: string): Promise<string> {
  const labels = hostname.split(".");
  for (let i = 0; i < labels.length - 1; i++) {
    const name = labels.slice(i).join(".");
    const [zone] = await list(`/zones?name=${name}&account.id=${CLOUDFLARE_ACCOUNT_ID}`);
    if (zone) return zone.id;
  }
  throw new Error(`The account has no zone for ${hostname}: a health check needs one.`);
}
