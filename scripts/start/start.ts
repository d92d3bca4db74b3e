/**
 * `npm start`: the whole service on this machine, with sample data and a receiver that shows the
 * signed webhooks as they arrive. Ctrl-C stops everything.
 */
import { createWriteStream } from "node:fs";
import { join, relative } from "node:path";
import { PORTAL_LINK_OPENS_MS } from "../../src/contract/limits.ts";
import { MINUTE_MS } from "../../src/contract/time.ts";
import type { PageBody } from "../../src/http/paging.ts";
import type { Automation } from "../../src/records/automations.ts";
import { makeWritable, ROOT } from "../shared/checkout.ts";
import { parseArguments } from "../shared/command.ts";
import { databasesIn, readConfig } from "../shared/databases.ts";
import { type LocalApi, openApi, Refusal } from "../shared/local-api.ts";
import { deleteState, makeSecrets, readState, writeServer } from "../shared/local-state.ts";
import { platformAt } from "../shared/platform-client.ts";
import { isTaken } from "../shared/ports.ts";
import { type Receipt, receiverUrl, startReceiver } from "../shared/receiver.ts";
import { makeSecret } from "../shared/secrets.ts";
import { print, printable, printError } from "../shared/terminal.ts";
import { migrate, type Output, type Run, serve } from "./processes.ts";
import { prepareWorkspace } from "./sample-workspace.ts";
import { urlRules } from "./url-rules.ts";

const USAGE = `npm start -- [--strict]

Runs the whole service on this machine, with sample data and a receiver that shows the signed
webhooks as they arrive. Ctrl-C stops everything; the next start uses the same data.

  --strict  validates webhook URLs as in production: https, a public host, and, if the variable
            DNS_OVER_HTTPS_URL names a resolver (in wrangler.toml or the environment), a name that
            resolves. No webhook can then be posted to this machine, not even to this receiver

  PORT  environment variable: the port of the API, 8787 by default; the receiver uses the next one
`;

const DEFAULT_PORT = 8787;
const DATA = join(ROOT, ".wrangler");
const LOG_FILE = join(DATA, "start.log");
const LOG_NAME = relative(process.cwd(), LOG_FILE);

/** The parts to stop at the end, in reverse order. */
const running = new AsyncDisposableStack();
let ending = false;

const { values } = parseArguments(USAGE, { strict: { type: "boolean", default: false } });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => end(0));
endWithNpm();
try {
  await start(parsePort(), values.strict);
} catch (error) {
  await fail(error instanceof Error ? error.message : String(error));
}

async function start(port: number, strict: boolean): Promise<void> {
  const receiverPort = port + 1;
  const base = `http://localhost:${port}`;
  makeWritable(DATA);
  await refuseTaken(port);
  await refuseTaken(receiverPort);
  prepareSecrets();
  const output = openOutput();
  print("Starting: the database, the server, the sample data…");
  for (const { binding, name } of databasesIn(await readConfig(join(ROOT, "wrangler.toml"))))
    await finish(migrate(binding, output), `The database ${name} could not be migrated`);
  const { rules, told } = await urlRules(strict);
  const local = { base, platformKey: makeSecret("npm-start") };
  const platformKeys = [local.platformKey, process.env.PLATFORM_KEYS].filter(Boolean).join();
  const server = serve(port, rules, platformKeys, output);
  running.defer(() => server.stop());
  void server.ended.then(() => fail(`The server ended: see ${LOG_NAME}.`));
  await server.ready;
  writeServer(local);
  const introduced = Promise.withResolvers<void>();
  if (!strict)
    await receive(receiverPort, (receipt) => introduced.promise.then(() => say(describe(receipt))));
  await prepareWorkspace(platformAt(local), base, strict ? null : receiverUrl(receiverPort));
  runCronEachMinute(base);
  await introduce(base, strict, told);
  introduced.resolve();
}

/** Calls the cron job, which wrangler does not do locally. */
function runCronEachMinute(base: string): void {
  const run = async () => {
    const answer = await fetch(`${base}/cdn-cgi/local/scheduled`).catch(() => null);
    // There is no response while the source does not build.
    if (answer && !answer.ok) say(`The scheduled job failed: see ${LOG_NAME}.`);
  };
  const timer = setInterval(run, MINUTE_MS);
  running.defer(() => clearInterval(timer));
  void run();
}

function parsePort(): number {
  const port = Number(process.env.PORT || DEFAULT_PORT);
  if (Number.isInteger(port) && port > 0 && port < 65535) return port;
  throw new Error("PORT must be a whole number from 1 to 65534: the receiver uses the next one.");
}

/** @throws Error if something already listens on `port`. */
async function refuseTaken(port: number): Promise<void> {
  if (await isTaken(port))
    throw new Error(
      `Port ${port} is in use: stop what uses it, or choose another one: PORT=… npm start`,
    );
}

/** Opens the log of this start; errors are shown in the terminal, too. */
function openOutput(): Output {
  const log = createWriteStream(LOG_FILE);
  log.on("error", ({ message }) => fail(`The log cannot be written: ${message}.`));
  return {
    log,
    onError: (line) => say(`${line.trim()} (more in ${LOG_NAME})`),
  };
}

/**
 * Creates the Worker's missing local secrets. If the encryption key was lost, the sample workspace can no
 * longer be read, and another one will be created; an API key that is no longer valid is replaced.
 */
function prepareSecrets(): void {
  if (makeSecrets().includes("ENCRYPTION_KEYS")) deleteState();
}

/** Waits for a process. @throws Error that begins with `complaint` if it fails. */
async function finish(run: Run, complaint: string): Promise<void> {
  running.defer(() => run.stop());
  if ((await run.ended) !== 0) throw new Error(`${complaint}: see ${LOG_NAME}.`);
}

async function receive(port: number, onReceipt: (receipt: Receipt) => void): Promise<void> {
  const receiver = await startReceiver(port, () => readState()?.webhook?.secret ?? null, onReceipt);
  running.defer(() => {
    receiver.close();
    receiver.closeAllConnections();
  });
}

/** Shows what to do next, in three lines to paste. */
async function introduce(base: string, strict: boolean, told: string): Promise<void> {
  const { workspaceId, apiKey, webhook, portal } = readState() ?? {};
  if (!apiKey) throw new Error("the sample workspace has no key");
  const automation = await findControllable(openApi(base, apiKey));
  const change = automation?.status === "paused" ? "active" : "paused";
  const curl = `curl -H 'Authorization: Bearer ${apiKey}'`;
  const control = `${curl} -X PATCH -H 'Content-Type: application/json' -d '{"status":"${change}"}'`;
  print(`
The API is at ${base}, its docs at ${base}/docs.
The server's log is ${LOG_NAME}. Ctrl-C stops everything.

  Workspace  ${workspaceId}
  API key    ${apiKey}
${portal ? `  Portal     ${portal}\n             (its webhooks in a browser, for a day; open it within ${PORTAL_LINK_OPENS_MS / MINUTE_MS} minutes, or get another:\n             npm run platform -- createPortalLink '{ "workspaceId": "${workspaceId}" }')\n` : ""}
Three requests to paste into another terminal:

  ${curl} ${base}/v1/automations

  ${automation ? `${control} ${base}/v1/automations/${automation.id}` : `${curl} ${base}/v1/runs`}

  ${curl} '${base}/v1/leads?limit=2'
`);
  print(`${told}\n`);
  if (strict) return;
  if (!webhook) print("This deployment does not serve webhooks: none will arrive here.\n");
  else if (automation)
    print(
      `The second one ${change === "paused" ? "pauses" : "activates"} “${automation.name}”: its signed event appears here, like every new lead and run.\n`,
    );
}

/** Finds an automation that a client can pause, or else one that it can activate; null if there is neither. */
async function findControllable(api: LocalApi): Promise<Automation | null> {
  try {
    const { data } = await api<PageBody<Automation>>("GET", "/v1/automations?limit=100");
    const inState = (wanted: Automation["status"]) => data.find(({ status }) => status === wanted);
    return inState("active") ?? inState("paused") ?? null;
  } catch (error) {
    if (error instanceof Refusal && error.code === "route_not_found") return null;
    throw error;
  }
}

/** Describes a receipt in one line. */
function describe(receipt: Receipt): string {
  if (receipt.verdict === "rejected") return `webhook rejected: ${receipt.reason}`;
  const { delivery, verdict } = receipt;
  const signed =
    verdict === "repeated" ? "signature verified, received before" : "signature verified";
  return `${delivery.type}  ${subjectOf(delivery)}  ${delivery.id}  ${signed}`;
}

function subjectOf({ data }: (Receipt & { verdict: "accepted" })["delivery"]): string {
  if ("source" in data) return `${data.name ?? data.phone} (${data.source})`;
  if ("trigger_type" in data) return `${data.trigger_type}: ${data.status}`;
  return `${data.name} is ${data.status}`;
}

/** Prints a line with the time of day. */
function say(text: string): void {
  print(`${new Date().toTimeString().slice(0, 8)}  ${printable(text)}`);
}

async function fail(message: string): Promise<void> {
  if (!ending) printError(message);
  await end(1);
}

/** Ends this process with npm. It loses its parent if npm does not pass a signal on. */
function endWithNpm(): void {
  if (!process.env.npm_lifecycle_event) return;
  const parent = process.ppid;
  setInterval(() => process.ppid !== parent && end(0), 1_000).unref();
}

/** Stops everything, then exits; only the first call counts. */
async function end(code: number): Promise<void> {
  if (ending) return;
  ending = true;
  try {
    await running.disposeAsync();
  } finally {
    process.exit(code);
  }
}
