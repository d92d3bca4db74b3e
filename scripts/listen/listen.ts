/**
 * Receives the events of the running local server, shows them, and forwards them byte for byte:
 *
 *     npm run listen -- --forward http://localhost:3000/hook
 *
 * Its subscription lasts as long as it runs.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { emitKeypressEvents, type Key } from "node:readline";
import { buffer } from "node:stream/consumers";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import { isId } from "../../src/contract/ids.ts";
import { RECORDS_MAX, RETRY_WAITS_SECONDS } from "../../src/contract/limits.ts";
import type { Page } from "../../src/http/paging.ts";
import type { Webhook } from "../../src/webhooks/subscriptions.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { type LocalApi, openApi, Refusal } from "../shared/local-api.ts";
import { findLocalServer } from "../shared/local-server.ts";
import { openPlatform } from "../shared/platform-client.ts";
import { isTaken } from "../shared/ports.ts";
import { print, printable } from "../shared/terminal.ts";
import { type Answer, forward } from "./forward.ts";

const USAGE = `npm run listen -- [--forward URL]

Shows the events of the local server's sample workspace as they are posted. It has its own
subscription, which Ctrl-C removes. To cause an event: npm run trigger. After a failure, the key r
retries now instead of waiting.

  --forward URL  also post each delivery to URL, with the same bytes and headers, and return its answer
                 to the service; your receiver verifies with the signing secret that is printed
`;

/** The path that listeners receive on; it identifies the subscriptions that killed listeners left. */
const PATH = "/npm-run-listen";

/** How often each undelivered event has failed, by event id. */
const failures = new Map<string, number>();

interface Subscription {
  id: string;
  secret: string;
}

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, { forward: { type: "string" } });
await listen(values.forward === undefined ? null : parseTarget(values.forward));

function parseTarget(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && /^https?:$/.test(url.protocol)) return url;
  throw new Error("--forward: expected a URL that starts with http:// or https://");
}

async function listen(target: URL | null): Promise<void> {
  const { base, apiKey } = await findLocalServer();
  const api = openApi(base, apiKey);
  await removeLeftOvers(api);
  const server = createServer((request, response) => receive(target, request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const subscribed = api<Subscription>("POST", "/v1/webhooks", {
    url: `http://127.0.0.1:${port}${PATH}`,
    events: WebhookEvent.options,
  });
  removeAtEnd(api, subscribed);
  const { id, secret } = await subscribed.catch((error) => {
    if (!(error instanceof Refusal && error.code === "invalid_request")) throw error;
    throw new Error("The local server refuses URLs on this machine: start it without --strict.");
  });
  print(`Listening${target ? `, forwarding to ${target.href}` : ""}. Ctrl-C stops.`);
  print(`Signing secret: ${secret}`);
  if (target && process.stdin.isTTY) retryOnKey(id);
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

/** Ends the waits of what has failed. @returns what it did. */
async function retryNow(webhookId: string): Promise<string> {
  const known = [...failures.keys()].filter((id) => isId("event", id));
  const eventIds = known.slice(0, RECORDS_MAX);
  if (eventIds.length === 0) return "Nothing has failed.";
  // Closed again: while it is open, it ends this process at Ctrl-C.
  await using platform = await openPlatform();
  await platform.call("redeliver", { webhookId, eventIds });
  return eventIds.length === 1 ? "Retrying 1 event." : `Retrying ${eventIds.length} events.`;
}

/** Removes the subscriptions of listeners that were killed. */
async function removeLeftOvers(api: LocalApi): Promise<void> {
  const { data } = await api<Page<Webhook>>("GET", "/v1/webhooks?limit=100");
  for (const { id, url } of data) {
    const { pathname, port } = new URL(url);
    if (pathname === PATH && !(await isTaken(Number(port))))
      await api("DELETE", `/v1/webhooks/${id}`);
  }
}

/** Removes the subscription when this process is told to end, then exits. */
function removeAtEnd(api: LocalApi, subscribed: Promise<Subscription>): void {
  let isEnding = false;
  const end = async () => {
    if (isEnding) return;
    isEnding = true;
    try {
      const { id } = await subscribed;
      await api("DELETE", `/v1/webhooks/${id}`);
      print("\nStopped listening and removed the subscription.");
      process.exit(0);
    } catch {
      fail("The local server is gone: the next `npm run listen` removes the subscription.");
    }
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, end);
}

async function receive(target: URL | null, request: IncomingMessage, response: ServerResponse) {
  try {
    const body = await buffer(request);
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
  const time = new Date().toTimeString().slice(0, 8);
  const { id, type } = parseEvent(body);
  const words = [time, type, id];
  if (answer) words.push(`${answer.status}${answer.failure ? ` (${answer.failure})` : ""}`);
  print(`\n${printable(words.join("  "))}`);
  print(`X-Service-Signature: ${printable(String(headers["x-service-signature"]))}`);
  print(printable(body.toString()));
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
  // Retried by hand after its last failure, it starts again.
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
