/**
 * `npm start`: the whole service on this machine, with sample data and a webhook handler that shows the
 * signed webhooks as they arrive. Ctrl-C stops everything.
 */
import { createWriteStream } from "node:fs";
import type { RequestListener } from "node:http";
import { join, relative } from "node:path";
import { MINUTE_MS } from "../../src/contract/time.ts";
import { makeWritable, ROOT } from "../shared/checkout.ts";
import { parseArguments } from "../shared/command.ts";
import {
  deleteState,
  lockData,
  makeSecrets,
  readState,
  writeServer,
} from "../shared/local-state.ts";
import { platformAt } from "../shared/platform-client.ts";
import { isTaken } from "../shared/ports.ts";
import { type Receipt, receiverUrl, startReceiver } from "../shared/receiver.ts";
import { makeSecret } from "../shared/secrets.ts";
import { type Colour, print, printError, printOver, printParts } from "../shared/terminal.ts";
import { migrateDatabases } from "./migrate-databases.ts";
import { leadToPortal, portalAddress } from "./portal-link.ts";
import { type Output, serve } from "./processes.ts";
import { prepareWorkspace } from "./sample-workspace.ts";
import { urlRules } from "./url-rules.ts";

const USAGE = `npm start -- [--strict]

Runs the whole service on this machine, with sample data and a webhook handler that shows each
event as it arrives. Ctrl-C stops everything; the next start uses the same data.

  --strict  validates webhook URLs as in production: https, a public host, and, if the variable
            DNS_OVER_HTTPS_URL names a resolver (in wrangler.toml or the environment), a name that
            resolves. No event can then be sent to this machine, not even to this handler

  PORT  environment variable: the port of the API, 8787 by default; the handler uses the next one
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
  print("Starting, which takes half a minute the first time:");
  await start(parsePort(), values.strict);
} catch (error) {
  await fail(error instanceof Error ? error.message : String(error));
}

async function start(port: number, strict: boolean): Promise<void> {
  const receiverPort = port + 1;
  const base = `http://localhost:${port}`;
  makeWritable(DATA);
  running.use(lockData());
  await refuseTaken(port, receiverPort);
  prepareSecrets();
  const output = openOutput();
  await during("database", migrateDatabases);
  const { rules, told } = await urlRules(strict);
  const local = { base, platformKey: makeSecret("npm-start") };
  const platformKeys = [local.platformKey, process.env.PLATFORM_KEYS].filter(Boolean).join();
  const server = serve(port, rules, platformKeys, output);
  running.defer(() => server.stop());
  void server.ended.then(() => fail(`The server ended: see ${LOG_NAME}.`));
  await during("server", () => server.ready);
  writeServer(local);
  const introduced = Promise.withResolvers<void>();
  const platform = platformAt(local);
  const origin = `http://localhost:${receiverPort}`;
  await receive(
    receiverPort,
    (receipt) => introduced.promise.then(() => show(receipt)),
    (request, response) =>
      leadToPortal(platform, readState()?.workspaceId ?? "", origin)(request, response),
  );
  await during("sample data", () =>
    prepareWorkspace(platform, base, strict ? null : receiverUrl(receiverPort)),
  );
  runCronEachMinute(base);
  introduce(base, portalAddress(origin), strict, told);
  introduced.resolve();
}

/** Shows a step while it goes on, with the seconds that it has taken, and then that it is done. */
async function during(step: string, run: () => Promise<void>): Promise<void> {
  const startedAt = performance.now();
  const seconds = () => `${Math.round((performance.now() - startedAt) / 1000)} s`;
  const isTerminal = Boolean(process.stderr.isTTY);
  const timer = setInterval(() => isTerminal && printOver(`  … ${step}  ${seconds()}`), 250);
  try {
    await run();
  } finally {
    clearInterval(timer);
    if (isTerminal) printOver("");
  }
  printParts("  ", ["green", "✓"], ` ${step}  `, ["dim", seconds()]);
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
  throw new Error("PORT must be a whole number from 1 to 65534: the handler uses the next one.");
}

/** @throws Error if something already listens on one of the two ports. */
async function refuseTaken(port: number, receiverPort: number): Promise<void> {
  const other = receiverPort < 65_534 ? port + 2 : port - 2;
  for (const needed of [port, receiverPort])
    if (await isTaken(needed))
      throw new Error(
        `Port ${needed} is in use. Stop what uses it, or choose another pair of ports: PORT=${other} npm start uses ${other} and ${other + 1}.`,
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

async function receive(
  port: number,
  onReceipt: (receipt: Receipt) => void,
  onGet: RequestListener,
): Promise<void> {
  const secret = () => readState()?.webhook?.secret ?? null;
  const receiver = await startReceiver(port, secret, onReceipt, onGet);
  running.defer(() => {
    receiver.close();
    receiver.closeAllConnections();
  });
}

/** Shows what to do next: an address, a key to paste, and the portal. */
function introduce(base: string, portal: string, strict: boolean, told: string): void {
  const { apiKey, webhook } = readState() ?? {};
  if (!apiKey) throw new Error("the sample workspace has no key");
  print("");
  printParts(
    "  ",
    ["bold", `${base}/docs`],
    ["dim", "  the docs, with the API at the same address"],
  );
  printParts("  ", ["bold", `export API_KEY=${apiKey}`]);
  printParts("  ", ["bold", portal], ["dim", "  the portal, while npm start runs"]);
  print(`\n${told}`);
  if (strict) return;
  if (!webhook) print("This deployment does not serve webhooks: none will arrive here.");
  else print("Each event appears here. In another terminal: npm run trigger -- lead.created");
  print(`The log is ${LOG_NAME}. Ctrl-C stops everything.\n`);
}

/** Shows a receipt in one line. */
function show(receipt: Receipt): void {
  if (receipt.verdict === "rejected") {
    say(["red", "webhook rejected"], `: ${receipt.reason}`);
    return;
  }
  const { delivery, verdict } = receipt;
  const signed =
    verdict === "repeated" ? "signature verified, received before" : "signature verified";
  say(["cyan", delivery.type], `  ${subjectOf(delivery)}  ${delivery.id}  `, ["green", signed]);
}

function subjectOf({ data }: (Receipt & { verdict: "accepted" })["delivery"]): string {
  if ("source" in data) return `${data.name ?? data.phone} (${data.source})`;
  if ("trigger_type" in data) return `${data.trigger_type}: ${data.status}`;
  return `${data.name} is ${data.status}`;
}

/** Prints a line with the time of day. */
function say(...parts: (string | [Colour, string])[]): void {
  printParts(["dim", new Date().toTimeString().slice(0, 8)], "  ", ...parts);
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
