import type { IncomingMessage, ServerResponse } from "node:http";
import { json } from "node:stream/consumers";
import { beforeEach, expect, test } from "vitest";
import { alarms } from "../../../scripts/alarms/alarms.ts";
import { opened } from "../../node/support/opened.ts";
import { runHere, runProgram } from "../../node/support/process.ts";
import { serve } from "../../node/support/server.ts";

/** The lists of Cloudflare's API, by path; each item as it was last written. */
let lists: Record<string, { id: string; name: string }[]>;
let writes: string[];

const zones = [{ id: "z1", name: "example.com" }];
const CHECKS = "/zones/z1/healthchecks";
const POLICIES = "/accounts/a1/alerting/v3/policies";

const cloudflare = await opened(serve(answerAsCloudflare));

async function answerAsCloudflare(request: IncomingMessage, response: ServerResponse) {
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://api");
  const answer = (result: unknown) =>
    response.end(JSON.stringify({ success: true, errors: [], result }));
  if (request.headers.authorization !== "Bearer token") {
    response.statusCode = 403;
    return response.end('{ "success": false, "errors": [{ "message": "Forbidden" }] }');
  }
  if (pathname === "/zones")
    return answer(zones.filter(({ name }) => name === searchParams.get("name")));
  const [path = ""] = Object.keys(lists).filter((list) => pathname.startsWith(list));
  const list = lists[path] ?? [];
  if (request.method === "GET") return answer(list);
  writes.push(`${request.method} ${pathname}`);
  const item = (await json(request)) as { name: string };
  const id = request.method === "PUT" ? pathname.slice(path.length + 1) : `id-${list.length}`;
  lists[path] = [...list.filter((each) => each.id !== id), { id, ...item }];
  answer({ id });
}

beforeEach(() => {
  lists = { [CHECKS]: [], [POLICIES]: [{ id: "theirs", name: "another" }] };
  writes = [];
});

const ENV = { CLOUDFLARE_API_BASE_URL: cloudflare.url, CLOUDFLARE_ACCOUNT_ID: "a1" };

/** Runs the command to its end. */
function runAlarms(...args: string[]) {
  const words = [process.execPath, "--no-warnings", "scripts/alarms/alarms.ts", ...args];
  return runProgram(words, { env: { ...process.env, ...ENV } });
}

/** Does what the command does, in this process. */
async function alarmsHere(args: string[], token = "token", more = {}) {
  const env = { ...ENV, CLOUDFLARE_API_TOKEN: token, ...more };
  const { code, stdout, stderr } = await runHere(() => alarms(args, env));
  return { code, output: stdout + stderr };
}

const APPLY = ["--apply", "--email", "ops@example.com", "--origin", "https://api.example.com"];

test("npm run alarms prints the nine alarms, for the Worker of an environment", async () => {
  const { code, stdout: output } = await runAlarms("--env", "staging");
  expect(code).toBe(0);
  expect(output.match(/^[a-z_]+: /gm)).toHaveLength(9);
  expect(output).toContain(`request_failed: threshold >= 10, evaluation window 5 minutes, of
  SELECT SUM(sampleInterval) AS value FROM logs.workersLogs WHERE accountTag = 'a1' AND scriptName = 'public-api-staging' AND attributes['event'] = 'request_failed' AND timestamp >= NOW() - INTERVAL '5' MINUTE
`);
  expect(output).toContain(
    "attributes['$workers.outcome'] IN ('exceededCpu', 'exceededMemory') AND timestamp",
  );
  expect(writes).toEqual([]);
});

test("npm run alarms says to replace ACCOUNT_ID in its queries only if no account is set", async () => {
  const sentence = "Replace ACCOUNT_ID in the queries with the id of your account.";
  expect((await alarmsHere([])).output).not.toContain("ACCOUNT_ID");
  const { output } = await alarmsHere([], "token", { CLOUDFLARE_ACCOUNT_ID: undefined });
  expect(output).toContain("accountTag = 'ACCOUNT_ID'");
  expect(output).toContain(sentence);
});

test("npm run alarms stops with the sentence alone, and the exit code 1", async () => {
  const stderr = "--apply needs --email ADDRESS\n";
  expect(await runAlarms("--apply")).toEqual({ code: 1, stdout: "", stderr });
});

test("npm run alarms --apply creates what Cloudflare notifies of", async () => {
  const first = await alarmsHere(APPLY);
  expect(first.output).toContain("ops@example.com is notified if api.example.com is not healthy");
  expect(first.code).toBe(0);
  expect(writes).toEqual([`POST ${CHECKS}`, `POST ${POLICIES}`, `POST ${POLICIES}`]);
  const http_config = { path: "/health", expected_codes: ["200"] };
  expect(lists[CHECKS]).toMatchObject([
    { name: "public-api-health", address: "api.example.com", http_config },
  ]);
  const filters = { health_check_id: ["id-0"] };
  const mechanisms = { email: [{ id: "ops@example.com" }] };
  expect(lists[POLICIES]).toMatchObject([
    { name: "another" },
    { alert_type: "health_check_status_notification", filters, mechanisms },
    { alert_type: "incident_alert" },
  ]);
  writes = [];
  expect((await alarmsHere(APPLY)).code).toBe(0);
  expect(writes).toEqual([`PUT ${CHECKS}/id-0`, `PUT ${POLICIES}/id-1`, `PUT ${POLICIES}/id-2`]);
});

test.each([
  [["--apply"], "token", "--apply needs --email ADDRESS"],
  [[...APPLY.slice(0, 3), "--origin", ""], "token", "Set PORTAL_ORIGIN in wrangler.toml"],
  [[...APPLY.slice(0, 3), "--origin", "https://other.test"], "token", "has no zone for other.test"],
  [APPLY, "wrong", "Cloudflare rejects GET /zones?name=api.example.com&account.id=a1: Forbidden"],
  [["--env", "nope"], "token", "wrangler.toml has no [env.nope]"],
])("npm run alarms %j with a %s stops with a sentence", async (args, token, sentence) => {
  const { code, output } = await alarmsHere(args, token);
  expect(output).toContain(sentence);
  expect(output.trim().split("\n")).toHaveLength(1);
  expect(code).toBe(1);
  expect(writes).toEqual([]);
});
