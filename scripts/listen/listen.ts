/**
 * Receives the events of the running local server, shows them, and forwards them byte for byte:
 *
 *     npm run listen -- --forward http://localhost:3000/hook
 *
 * Its subscription lasts as long as it runs, or, with `--keep`, until another one is wanted.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { emitKeypressEvents, type Key } from "node:readline";
import { buffer } from "node:stream/consumers";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import { isId } from "../../src/contract/ids.ts";
import { RECORDS_MAX, RETRY_WAITS_SECONDS } from "../../src/contract/limits.ts";
import type { PageBody } from "../../src/http/paging.ts";
import type { Webhook } from "../../src/subscriptions/subscriptions.ts";
import { fail, parseArguments, parseHeaders } from "../shared/command.ts";
import { type LocalApi, openApi, Refusal } from "../shared/local-api.ts";
import { findSampleWorkspace } from "../shared/local-server.ts";
import { openPlatform } from "../shared/platform-client.ts";
import { isTaken } from "../shared/ports.ts";
import { signatureFault } from "../shared/receiver.ts";
import { print, printable } from "../shared/terminal.ts";
import { type Answer, forward, type Target } from "./forward.ts";
import { type Kept, readKept, writeKept } from "./kept.ts";

const USAGE = `npm run listen -- [--forward URL [--header "NAME: VALUE"]… [--insecure]] [--keep]

Shows the events of the local server's sample workspace as they are posted. It has its own
webhook, which Ctrl-C removes. To cause an event: npm run trigger. After a failure, the key r
retries now instead of waiting.

  --forward URL  also send each delivery to URL, with the same bytes and headers, and return its response
                 to the service; your handler verifies with the signing secret that is printed
  --header H     adds a header to each of them, such as "X-Token: abc", as custom headers of a
                 webhook do; repeatable
  --insecure     accepts any certificate of URL, such as that of a development server
  --keep         use the same webhook, and so the same secret, each time: Ctrl-C leaves it, and
                 events until the next time are delivered then. Its secret is in
                 .wrangler/listen.json; delete that file to get another one
`;

/** The path that listeners receive on; it identifies the subscriptions that killed listeners left. */
const PATH = "/npm-run-listen";

/** How often each undelivered event has failed, by event id. */
const failures = new Map<string, number>();

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  forward: { type: "string" },
  header: { type: "string", multiple: true },
  insecure: { type: "boolean", default: false },
  keep: { type: "boolean", default: false },
});
await listen(parseTarget(), values.keep);

function parseTarget(): Target | null {
  const { forward: text, header, insecure: isInsecure } = values;
  if (text === undefined && (header || isInsecure))
    throw new Error("--header and --insecure need --forward; --help shows the usage");
  if (text === undefined) return null;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && /^https?:$/.test(url.protocol))
    return { url, headers: parseHeaders(header), isInsecure };
  throw new Error("--forward: expected a URL that starts with http:// or https://");
}

async function listen(target: Target | null, isKept: boolean): Promise<void> {
  const { base, apiKey } = await findSampleWorkspace();
  const api = openApi(base, apiKey);
  const { data } = await api<PageBody<Webhook>>("GET", "/v1/webhooks?limit=100");
  const kept = readKept();
  await removeLeftOvers(
    api,
    data.filter(({ id }) => id !== kept?.id),
  );
  const known = isKept ? data.find(({ id }) => id === kept?.id) : undefined;
  const server = createServer((request, response) =>
    receive(subscribed, target, request, response),
  );
  server.listen(known ? Number(new URL(known.url).port) : 0, "127.0.0.1");
  await once(server, "listening").catch((error: Error) => {
    throw new Error(`${error.message}: is another listener running with --keep?`);
  });
  const { port } = server.address() as AddressInfo;
  const subscribed = kept && known ? resume(kept, known) : subscribe(api, port);
  endOnSignal(isKept ? null : { api, subscribed });
  const subscription = await subscribed;
  if (isKept) writeKept(subscription);
  print(`Listening${target ? `, forwarding to ${target.url.href}` : ""}. Ctrl-C stops.`);
  print(`Signing secret: ${subscription.secret}`);
  print(`X-Service-Webhook: ${subscription.id}`);
  if (target && process.stdin.isTTY) retryOnKey(subscription.id);
}

/** Subscribes this process to every event type. */
async function subscribe(api: LocalApi, port: number): Promise<Kept> {
  const url = `http://127.0.0.1:${port}${PATH}`;
  const body = { url, events: WebhookEvent.options };
  return api<Kept>("POST", "/v1/webhooks", body).catch((error) => {
    throw error instanceof Refusal ? new Error(explain(error)) : error;
  });
}

/** Says why the subscription was refused, and what to do. */
function explain({ message, reason }: Refusal): string {
  if (reason === "https_required" || reason === "private_address")
    return "The local server rejects URLs on this machine: start it without --strict.";
  if (reason === "subscription_limit_reached")
    return "The sample workspace has its maximum of webhooks: delete one in the portal.";
  return message;
}

/** Reuses the subscription of an earlier listener, and enables it if it was disabled in the meantime. */
async function resume(kept: Kept, { disabled_at }: Webhook): Promise<Kept> {
  if (disabled_at === null) return kept;
  await using platform = await openPlatform();
  await platform.call("enableWebhook", { webhookId: kept.id });
  return kept;
}

/** Retries what has failed whenever the key r is pressed. Ctrl-C still ends this process. */
function retryOnKey(webhookId: string): void {
  emitKeypressEvents(process.stdin);
  process.stdin.setRawMode(true);
  process.stdin.on("keypress", async (_, { name, ctrl }: Key) => {
    if (ctrl && name === "c") process.kill(process.pid, "SIGINT");
    if (ctrl || name !== "r") return;
    try {
      print(`\n${await retryNow(webhookId)}`);
    } catch (error) {
      print(`\nNot retried: ${error instanceof Error ? error.message : error}`);
    }
  });
  print("Press r to retry what has failed.");
}

/** Retries the failed events at once. @returns what it did. */
async function retryNow(webhookId: string): Promise<string> {
  const known = [...failures.keys()].filter((id) => isId("event", id));
  const eventIds = known.slice(0, RECORDS_MAX);
  if (eventIds.length === 0) return "Nothing has failed.";
  await using platform = await openPlatform();
  await platform.call("redeliver", { webhookId, eventIds });
  return eventIds.length === 1 ? "Retrying 1 event." : `Retrying ${eventIds.length} events.`;
}

/** Removes, of these subscriptions, those of listeners that were killed. */
async function removeLeftOvers(api: LocalApi, subscriptions: Webhook[]): Promise<void> {
  for (const { id, url } of subscriptions) {
    const { pathname, port } = new URL(url);
    if (pathname === PATH && !(await isTaken(Number(port))))
      await api("DELETE", `/v1/webhooks/${id}`);
  }
}

/** Exits when this process is told to end, and before that removes its subscription unless it is kept. */
function endOnSignal(removed: { api: LocalApi; subscribed: Promise<Kept> } | null): void {
  let isEnding = false;
  const end = async () => {
    if (isEnding) return;
    isEnding = true;
    if (!removed) {
      print("\nStopped listening. The webhook stays: --keep uses it again.");
      process.exit(0);
    }
    try {
      const { id } = await removed.subscribed;
      await removed.api("DELETE", `/v1/webhooks/${id}`);
      print("\nStopped listening and removed the webhook.");
      process.exit(0);
    } catch {
      fail("The local server is gone: the next `npm run listen` removes the webhook.");
    }
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE"]) process.on(signal, end);
}

/**
 * Receives a request. Without a signature of the subscription, it is neither shown nor forwarded: any web page can post to
 * this port, and would have the headers of `--header` added.
 */
async function receive(
  subscribed: Promise<Kept>,
  target: Target | null,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  try {
    const body = await buffer(request);
    const { secret } = await subscribed;
    const signature = request.headers["x-service-signature"];
    const fault = signatureFault(secret, signature, body, Date.now());
    if (fault !== null) {
      print(`\n${timeNow()}  401: not a delivery to this webhook (${fault})`);
      response.writeHead(401).end();
      return;
    }
    const answer = target ? await forward(target, request, body) : null;
    show(request, body, answer);
    if (answer) showNextAttempt(parseEvent(body).id, answer.status);
    response.writeHead(answer?.status ?? 204, answer?.headers).end();
  } catch {
    // The service closed the connection. It will retry.
    response.destroy();
  }
}

/** Prints a delivery: a summary, its signature, and its body as received. */
function show({ headers }: IncomingMessage, body: Buffer, answer: Answer | null): void {
  const { id, type } = parseEvent(body);
  const words = [timeNow(), type, id];
  if (answer) words.push(`${answer.status}${answer.failure ? ` (${answer.failure})` : ""}`);
  print(`\n${printable(words.join("  "))}`);
  print(`X-Service-Signature: ${printable(String(headers["x-service-signature"]))}`);
  print(printable(body.toString()));
}

function timeNow(): string {
  return new Date().toTimeString().slice(0, 8);
}

/** After a failed attempt, says when the next one will be. */
function showNextAttempt(id: string, status: number): void {
  if (status >= 200 && status < 300) {
    failures.delete(id);
    return;
  }
  const count = (failures.get(id) ?? 0) + 1;
  failures.set(id, count);
  const waitSeconds = RETRY_WAITS_SECONDS[count - 1];
  // An event that is resent after its last failure starts its schedule again.
  if (waitSeconds === undefined) failures.set(id, 0);
  // At the earliest: jitter, Retry-After or other failures can make it longer.
  print(
    waitSeconds === undefined
      ? "Failed for the last time: the service will not retry."
      : `Failed: the service retries in ${formatWait(waitSeconds)} at the earliest.`,
  );
}

function formatWait(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${seconds / 60} min` : `${seconds / 3600} h`;
}

function parseEvent(body: Buffer): { id: string; type: string } {
  try {
    return JSON.parse(body.toString());
  } catch {
    return { id: "?", type: "not an event" };
  }
}
