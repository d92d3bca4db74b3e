import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { signatureHeaders } from "../../../src/webhooks/signature.ts";
import {
  type Example,
  freePort,
  RECEIVERS,
  type RunningExample,
  reasonToSkip,
} from "../../node/support/examples.ts";
import { opened } from "../../node/support/opened.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

const runtime = await opened(startRuntime());

/** A delivery as sent over the wire. */
interface Captured {
  headers: Record<string, string>;
  body: Buffer;
  status: number;
}

/** A proxy in front of a receiver that records what passes through it. */
async function capture(target: string): Promise<{ url: string; passed: Captured[]; end: Server }> {
  const passed: Captured[] = [];
  const end = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const names = Object.keys(request.headers).filter((name) => name.includes("-"));
    const headers = Object.fromEntries(names.map((name) => [name, String(request.headers[name])]));
    delete headers["content-length"];
    delete headers["transfer-encoding"];
    const status = await send(target, headers, body);
    passed.push({ headers, body, status });
    response.writeHead(status).end();
  }).listen(0, "127.0.0.1");
  await once(end, "listening");
  return { url: `http://127.0.0.1:${(end.address() as AddressInfo).port}/hooks`, passed, end };
}

async function send(url: string, headers: Record<string, string>, bytes: Buffer | string) {
  const body = new Uint8Array(Buffer.from(bytes));
  const answer = await fetch(url, { method: "POST", headers, body, redirect: "manual" });
  await answer.body?.cancel();
  return answer.status;
}

async function subscribe(url: string): Promise<{ workspaceId: string; secret: string }> {
  const { workspaceId, subscribe } = await openWorkspace(runtime);
  const { secret } = await subscribe(url);
  return { workspaceId, secret };
}

const SIX_MINUTES_MS = 6 * 60_000;
const ACCEPTED = [200, 204];
const REFUSED = [400, 401];

for (const example of RECEIVERS) {
  const reason = reasonToSkip(example);
  const title = `examples/receivers/${example.file}${reason ? ` (skipped: ${reason})` : ""}`;
  describe.skipIf(reason !== null)(title, () => describeReceiver(example));
}

function describeReceiver(example: Example) {
  let receiver: RunningExample;
  let proxy: Awaited<ReturnType<typeof capture>>;
  let direct: string;
  let secret: string;
  let captured: Captured;
  let eventId: string;

  const signed = (body: string, shiftMs = 0, key = secret) =>
    signatureHeaders(key, eventId, body, Date.now() + shiftMs);
  const resend = (signature: Record<string, string>, body: Buffer | string = captured.body) =>
    send(direct, { ...captured.headers, ...lowerCased(signature) }, body);

  beforeAll(async () => {
    const port = await freePort();
    direct = `http://127.0.0.1:${port}/hooks`;
    proxy = await capture(direct);
    const subscribed = await subscribe(proxy.url);
    secret = subscribed.secret;
    receiver = await example.start(port, secret);
    const lead = {
      reference: "lead-1",
      source: "widget" as const,
      agent: { reference: "agent-1", name: "Lumière" },
      name: "Zoë “€” 🌻",
    };
    const { workspaceId } = subscribed;
    await runtime.env.PLATFORM.recordLeads({ workspaceId, leads: [lead] });
    await until(async () => (await runtime.env.PLATFORM.ledger({ workspaceId })).delivered === 1);
    captured = proxy.passed[0] as Captured;
    eventId = JSON.parse(captured.body.toString()).id;
  });

  afterAll(async () => {
    await receiver?.stop();
    proxy?.end.close();
  });

  test("accepts a real delivery and processes it", async () => {
    expect(proxy.passed.map(({ status }) => status)).toEqual([expect.toBeOneOf(ACCEPTED)]);
    await until(() => receiver.lines.length > 0);
    expect(receiver.lines).toEqual([`lead.created ${eventId}`]);
  });

  test("accepts the same event again, unchanged or signed afresh, and does not process it again", async () => {
    expect(await resend({})).toBeOneOf(ACCEPTED);
    const body = captured.body.toString();
    for (const minutes of [0, -4, 4])
      expect(await resend(await signed(body, minutes * 60_000))).toBeOneOf(ACCEPTED);
    const another = { ...JSON.parse(body), id: "evt_another" };
    const next = await signatureHeaders(secret, another.id, JSON.stringify(another), Date.now());
    expect(await resend(next, JSON.stringify(another))).toBeOneOf(ACCEPTED);
    await until(() => receiver.lines.length > 1);
    expect(receiver.lines).toEqual([`lead.created ${eventId}`, "lead.created evt_another"]);
  });

  test("processes an event once if its deliveries arrive concurrently", async () => {
    const event = { ...JSON.parse(captured.body.toString()), id: "evt_at_once" };
    const body = JSON.stringify(event);
    const signature = await signatureHeaders(secret, event.id, body, Date.now());
    const answers = await Promise.all(Array.from({ length: 6 }, () => resend(signature, body)));
    for (const status of answers) expect(status).toBeOneOf(ACCEPTED);
    await until(() => receiver.lines.includes("lead.created evt_at_once"));
    expect(receiver.lines.filter((line) => line.includes("evt_at_once"))).toHaveLength(1);
  });

  // The checker sends each of them what else is to be refused, and what two secrets sign.
  describe("rejects, and does not process,", () => {
    const refuses = (what: string, attempt: () => Promise<number>) =>
      test(what, async () => {
        const before = [...receiver.lines];
        expect(await attempt()).toBeOneOf(REFUSED);
        expect(receiver.lines).toEqual(before);
      });

    refuses("a byte more", () => resend({}, Buffer.concat([captured.body, Buffer.from("\n")])));
    refuses("a digit of the signatures changed", () =>
      resend({
        "x-service-signature": changed(captured.headers["x-service-signature"], "v1="),
        "webhook-signature": changed(captured.headers["webhook-signature"], "v1,"),
      }),
    );
    for (const disguise of ["t=1,t=$1", "t=$1,t=1", "t=$1e-6", "t= $1"])
      refuses(`what is signed 6 minutes ahead and says ${disguise}`, async () => {
        const ahead = lowerCased(await signed(captured.body.toString(), SIX_MINUTES_MS));
        const service = ahead["x-service-signature"]?.replace(/^t=(\d+)/, disguise) ?? "";
        return resend({ ...ahead, "x-service-signature": service });
      });
    refuses("an old signature under a new time", async () => {
      const then = lowerCased(await signed(captured.body.toString(), -SIX_MINUTES_MS));
      const now = Math.floor(Date.now() / 1000);
      const service = then["x-service-signature"] ?? "";
      return resend({
        "x-service-signature": service.replace(/^t=\d+/, `t=${now}`),
        "webhook-signature": then["webhook-signature"] ?? "",
        "webhook-timestamp": String(now),
      });
    });
    for (const garbage of [
      "",
      "t=,v1=",
      "t=1",
      "v1=1",
      "t=abc,v1=é",
      "t=1e3",
      "t=9".padEnd(5000, "9"),
    ])
      refuses(`the signature ${garbage.slice(0, 12)}`, () =>
        resend({
          "x-service-signature": garbage,
          "webhook-signature": garbage,
          "webhook-timestamp": garbage,
        }),
      );
  });

  test("has processed three events in total", () => {
    expect(receiver.lines.toSorted()).toEqual(
      [eventId, "evt_another", "evt_at_once"].map((id) => `lead.created ${id}`).toSorted(),
    );
  });
}

/** A signature with the first character of its digest changed. */
function changed(signature = "", prefix: string): string {
  const at = signature.indexOf(prefix) + prefix.length;
  const other = signature[at] === "a" ? "b" : "a";
  return signature.slice(0, at) + other + signature.slice(at + 1);
}

function lowerCased(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
