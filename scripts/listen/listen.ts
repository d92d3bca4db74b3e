/**
 * Receives the events of the running local server, shows them, and forwards them byte for byte:
 *
 *     npm run listen -- --forward http://localhost:3000/hook
 *
 * Its subscription lasts as long as it runs.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { buffer } from "node:stream/consumers";
import { WEBHOOK_EVENTS } from "../../src/contract/enumerations.ts";
import { RETRY_WAITS_SECONDS } from "../../src/contract/limits.ts";
import type { Page, Webhook } from "../../src/contract/resources.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { type LocalApi, openApi } from "../shared/local-api.ts";
import { findLocalServer } from "../shared/local-server.ts";
import { type Answer, forward } from "./forward.ts";

const USAGE = `npm run listen -- [--forward URL]

Shows the events of the sample workspace of the running local server, as they are posted. It has a
subscription of its own, which Ctrl-C removes. Cause an event with npm run trigger.

  --forward URL  posts each delivery there too, the same bytes and headers, and gives the service the
                 answer; verify with the signing secret that this prints
`;

/** Where listeners are posted to: by its path, a later one knows what an earlier one left. */
const PATH = "/npm-run-listen";

/** How often each event that is still to be delivered has failed, by its id. */
const failures = new Map<string, number>();

interface Subscription {
  id: string;
  /** What its deliveries are signed with. */
  secret: string;
}

const { values } = parseArguments(USAGE, { forward: { type: "string" } });
try {
  await listen(values.forward === undefined ? null : readTarget(values.forward));
} catch (error) {
  fail(error);
}

function readTarget(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && /^https?:$/.test(url.protocol)) return url;
  throw new Error("--forward: a URL that begins with http:// or https:// is expected");
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
    events: WEBHOOK_EVENTS,
  });
  removeAtEnd(api, subscribed);
  const { secret } = await subscribed;
  console.log(`Listening${target ? `, forwarding to ${target.href}` : ""}. Ctrl-C ends it.`);
  console.log(`Signing secret: ${secret}`);
}

/** Removes the subscriptions of listeners that were killed. */
async function removeLeftOvers(api: LocalApi): Promise<void> {
  const { data } = await api<Page<Webhook>>("GET", "/v1/webhooks?limit=100");
  for (const { id, url } of data) {
    const { pathname, port } = new URL(url);
    if (pathname === PATH && !(await isOpen(Number(port))))
      await api("DELETE", `/v1/webhooks/${id}`);
  }
}

function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve(true);
    });
    socket.on("error", () => resolve(false));
  });
}

/** Removes the subscription when this process is told to end, then ends it. */
function removeAtEnd(api: LocalApi, subscribed: Promise<Subscription>): void {
  let isEnding = false;
  const end = async () => {
    if (isEnding) return;
    isEnding = true;
    try {
      const { id } = await subscribed;
      await api("DELETE", `/v1/webhooks/${id}`);
      console.log("\nNo longer listening: the subscription is removed.");
      process.exit(0);
    } catch {
      fail("The local server has gone: the next `npm run listen` removes the subscription.");
    }
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, end);
}

async function receive(target: URL | null, request: IncomingMessage, response: ServerResponse) {
  try {
    const body = await buffer(request);
    const answer = target ? await forward(target, request, body) : null;
    show(request, body, answer);
    if (answer) sayWhatFollows(readEvent(body).id, answer.status);
    response.writeHead(answer?.status ?? 204, answer?.headers).end();
  } catch {
    // The service broke off. It will try again.
    response.destroy();
  }
}

/** Writes a delivery: a line about it, its signature, and its body as it came. */
function show({ headers }: IncomingMessage, body: Buffer, answer: Answer | null): void {
  const time = new Date().toTimeString().slice(0, 8);
  const { id, type } = readEvent(body);
  const words = [time, type, id];
  if (answer) words.push(`${answer.status}${answer.failure ? ` (${answer.failure})` : ""}`);
  console.log(`\n${words.join("  ")}`);
  console.log(`X-Service-Signature: ${headers["x-service-signature"]}`);
  console.log(body.toString());
}

/** Says after a failed attempt when the next one comes. */
function sayWhatFollows(id: string, status: number): void {
  if (status >= 200 && status < 300) {
    failures.delete(id);
    return;
  }
  const count = (failures.get(id) ?? 0) + 1;
  failures.set(id, count);
  const waitSeconds = RETRY_WAITS_SECONDS[count - 1];
  // The wait has jitter, and one that Retry-After asks for, or that other deliveries caused, is longer.
  console.log(
    waitSeconds === undefined
      ? "Failed for the last time: the service does not try again."
      : `Failed: the service tries again in ${inWords(waitSeconds)} at the earliest.`,
  );
}

function inWords(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${seconds / 60} min` : `${seconds / 3600} h`;
}

function readEvent(body: Buffer): { id: string; type: string } {
  try {
    return JSON.parse(body.toString());
  } catch {
    return { id: "?", type: "not an event" };
  }
}
