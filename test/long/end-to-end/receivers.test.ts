import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { signatureHeaders } from "../../../src/endpoints/signature.ts";
import {
  type Example,
  RECEIVERS,
  type RunningExample,
  reasonToSkip,
} from "../../node/support/examples.ts";
import { shareRuntime } from "../../node/support/local-runtime.ts";
import { freePort } from "../../node/support/server.ts";
import { openSocket } from "../../node/support/socket.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { checkHere } from "../../support/checker.ts";
import { until } from "../../support/until.ts";

const runtime = await shareRuntime();

const ACCEPTED = [200, 204];
const REFUSED = [400, 401];
const BIG_BYTES = 100_000_000;
/** How much a receiver's memory may grow over four concurrent large bodies, in bytes. */
const GROWTH_MAX = 60_000_000;
/** By when a stalling sender must have been cut off, on a busy machine. */
const CUT_OFF_MS = 60_000;

/** The headers that authenticate a delivery. */
type Signed = Record<string, string>;

const bodyOf = (id: string, more = "") =>
  JSON.stringify({ id, type: "lead.created", data: { name: "Zoë “€” 🌻" }, more });

/** Signs an event as if it were posted some minutes from now. */
const sign = (secret: string, id: string, minutes = 0, body = bodyOf(id)) =>
  signatureHeaders(secret, id, body, Date.now() + minutes * 60_000);

async function post(port: number, headers: Signed, body: string): Promise<number> {
  const init = { method: "POST", headers, body, redirect: "manual" } as const;
  const answer = await fetch(`http://127.0.0.1:${port}/hooks`, init);
  await answer.body?.cancel();
  return answer.status;
}

async function deliver(port: number, secret: string, id: string, more = "", minutes = 0) {
  const body = bodyOf(id, more);
  return post(port, await sign(secret, id, minutes, body), body);
}

/**
 * A script cannot control what `php -S` keeps of a request, and for how long; the web server in
 * front of a production PHP limits both.
 */
const isBehindServer = ({ file }: Example) => file === "receiver.php";

/** An example that runs, and the workspace that it is subscribed to. */
interface Running {
  port: number;
  secret: string;
  workspace: Awaited<ReturnType<typeof openWorkspace>>;
  receiver: RunningExample;
}

const running = new Map<Example, Promise<Running>>();
afterAll(async () => {
  for (const each of await Promise.allSettled(running.values()))
    if (each.status === "fulfilled") await each.value.receiver.stop();
});

/** Starts an example once for all of its tests: compiling one, or starting its runtime, takes longer than most of them. */
function started(example: Example): Promise<Running> {
  const known = running.get(example) ?? start(example);
  running.set(example, known);
  return known;
}

async function start(example: Example): Promise<Running> {
  const port = await freePort();
  const workspace = await openWorkspace(runtime);
  const { secret } = await workspace.subscribe(`http://127.0.0.1:${port}/hooks`);
  return { port, secret, workspace, receiver: await example.start(port, secret) };
}

for (const example of RECEIVERS) {
  const reason = reasonToSkip(example);
  const title = `examples/receivers/${example.file}${reason ? ` (skipped: ${reason})` : ""}`;
  describe.skipIf(reason !== null)(title, () => describeReceiver(example));
}

function describeReceiver(example: Example) {
  let { workspace, receiver, port, secret } = {} as Running;
  beforeAll(async () => {
    ({ workspace, receiver, port, secret } = await started(example));
  });

  test("accepts a real delivery and processes it", async () => {
    const { workspaceId, recordLeads } = workspace;
    await recordLeads(["lead-1"], () => ({ name: "Zoë “€” 🌻" }));
    await until(async () => (await runtime.env.PLATFORM.ledger({ workspaceId })).delivered === 1);
    await until(() => receiver.lines.length > 0);
    expect(receiver.lines).toEqual([expect.stringMatching(/^lead\.created evt_\w+$/)]);
  });

  test("processes an event once, if it comes again at once, later or signed afresh", async () => {
    const [real = ""] = receiver.lines;
    const same = await sign(secret, "evt_again");
    const atOnce = [0, 0, 0, 0, -4, 4].map((minutes) =>
      deliver(port, secret, "evt_again", "", minutes),
    );
    for (const status of await Promise.all(atOnce)) expect(status).toBeOneOf(ACCEPTED);
    for (const _ of [1, 2]) expect(await post(port, same, bodyOf("evt_again"))).toBeOneOf(ACCEPTED);
    expect(await deliver(port, secret, "evt_another")).toBeOneOf(ACCEPTED);
    await until(() => receiver.lines.includes("lead.created evt_another"));
    expect(receiver.lines).toEqual([real, "lead.created evt_again", "lead.created evt_another"]);
  });

  test("passes every check of the checker, and processes none of its invented events", async () => {
    const before = receiver.lines.length;
    const findings = await checkHere(`http://127.0.0.1:${port}/hooks`, secret);
    expect(findings).toHaveLength(10);
    expect(findings.filter(({ result }) => result !== "passed")).toEqual([]);
    // They are all labelled as tests.
    expect(receiver.lines.length).toBe(before);
  });

  const SERVICE = "X-Service-Signature";
  /** Replaces the time that a signature names. */
  const disguise = (by: string) => (headers: Signed) => ({
    ...headers,
    [SERVICE]: String(headers[SERVICE]).replace(/^t=(\d+)/, by),
  });
  const otherDigit = (text = "", prefix: string) => {
    const at = text.indexOf(prefix) + prefix.length;
    return text.slice(0, at) + (text[at] === "a" ? "b" : "a") + text.slice(at + 1);
  };
  const garbage = (text: string) => () => ({
    [SERVICE]: text,
    "webhook-signature": text,
    "webhook-timestamp": text,
  });
  const now = String(Math.floor(Date.now() / 1000));

  type Wrong = [what: string, minutes: number, change: (headers: Signed) => Signed, added?: string];
  const AHEAD = ["t=1,t=$1", "t=$1,t=1", "t=$1e-6", "t= $1"];
  const GARBAGE = ["", "t=,v1=", "t=1", "v1=1", "t=abc,v1=é", "t=1e3", "t=9".padEnd(5000, "9")];

  // The checker sends each of them what else is to be refused, and what two secrets sign.
  test.each<Wrong>([
    ["a byte more", 0, (headers) => headers, "\n"],
    [
      "a digit of the signatures changed",
      0,
      (headers) => ({
        [SERVICE]: otherDigit(headers[SERVICE], "v1="),
        "webhook-signature": otherDigit(headers["webhook-signature"], "v1,"),
      }),
    ],
    [
      "an old signature under a new time",
      -6,
      (headers) => ({ ...disguise(`t=${now}`)(headers), "webhook-timestamp": now }),
    ],
    ...AHEAD.map((by): Wrong => [`what is signed 6 minutes ahead and says ${by}`, 6, disguise(by)]),
    ...GARBAGE.map((text): Wrong => [`the signature ${text.slice(0, 12)}`, 0, garbage(text)]),
  ])("rejects, and does not process, %s", async (_, minutes, change, added = "") => {
    const before = [...receiver.lines];
    const headers = await sign(secret, "evt_wrong", minutes);
    const changed = { ...headers, ...change(headers) };
    expect(await post(port, changed, bodyOf("evt_wrong") + added)).toBeOneOf(REFUSED);
    expect(receiver.lines).toEqual(before);
  });

  test("accepts the largest possible delivery", async () => {
    expect(await deliver(port, secret, "evt_large", "x".repeat(1_100_000))).toBeOneOf(ACCEPTED);
  });

  test.runIf(process.platform === "linux" && !isBehindServer(example)).each([
    ["with its length", `Content-Length: ${BIG_BYTES}`],
    ["in chunks", "Transfer-Encoding: chunked"],
  ])(
    "rejects four concurrent bodies of 100 MB %s, and keeps none of them in memory",
    async (_how, header) => {
      writeFileSync(`/proc/${receiver.pid}/clear_refs`, "5"); // Resets the peak to the current value.
      const before = peakMemory(receiver.pid);
      const sends = Array.from({ length: 4 }, () => sendBig(port, header));
      for (const answer of await Promise.all(sends))
        expect(answer).toMatch(/^$|^HTTP\/1\.\d 4\d\d /);
      expect(peakMemory(receiver.pid) - before).toBeLessThan(GROWTH_MAX);
      expect(await deliver(port, secret, `evt_after_${header.length}`)).toBeOneOf(ACCEPTED);
    },
  );

  test.runIf(isBehindServer(example))("rejects a body of 100 MB", async () => {
    expect(await sendBig(port, `Content-Length: ${BIG_BYTES}`)).toMatch(/^HTTP\/1\.\d 413 /);
  });

  test.runIf(isBehindServer(example))(
    "stores processed ids where no other user can read them",
    () => {
      const folder = join(receiver.folder, ".local/state/webhook-events");
      const files = readdirSync(folder);
      expect(files.length).toBeGreaterThan(0);
      const modes = ["", ...files].map((file) => statSync(join(folder, file)).mode & 0o777);
      expect(modes).toEqual([0o700, ...files.map(() => 0o600)]);
      expect(existsSync(join(receiver.folder, "webhook-events-done"))).toBe(false);
    },
  );
}

describe.concurrent("cuts off stalling senders, and serves others in the meantime:", () => {
  const head = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n";
  const lengths = ["1000", "-1", "abc", "1e3", "99999999999999999999"];
  const starts: [start: string, drip?: string][] = [
    [""],
    [head],
    [head, "X"],
    [`${head}\r\n`],
    ...lengths.map((length): [string] => [`${head}Content-Length: ${length}\r\n\r\n`]),
    [`${head}Content-Length: 100000\r\n\r\n`, "x"],
    [`${head}Transfer-Encoding: chunked\r\n\r\n`],
    [`${head}Transfer-Encoding: chunked\r\n\r\n`, "1\r\nx\r\n"],
  ];

  for (const example of RECEIVERS)
    test.skipIf(reasonToSkip(example) !== null)(example.file, async () => {
      const { port, secret } = await started(example);
      const stalling = starts.map(([start, drip]) => stall(port, start, drip));
      await sleep(1_000);
      expect(await deliver(port, secret, "evt_meanwhile")).toBeOneOf(ACCEPTED);
      if (!isBehindServer(example)) for (const end of stalling) expect(await end).toBe("cut off");
      expect(await deliver(port, secret, "evt_afterwards")).toBeOneOf(ACCEPTED);
    });
});

/** The peak memory of a process, in bytes. */
function peakMemory(pid: number): number {
  const [, kilobytes] = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1024;
}

/** Sends a body of 100 MB for as long as it is accepted. @returns the response. */
async function sendBig(port: number, header: string): Promise<string> {
  const socket = openSocket(port);
  const closed = once(socket, "close").catch(() => {});
  socket.write(`POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n${header}\r\n\r\n`);
  const piece = Buffer.alloc(1_000_000, "x");
  const framed = header.startsWith("Transfer")
    ? Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")])
    : piece;
  for (let sent = 0; sent < BIG_BYTES && socket.writable && socket.answer === ""; sent += 1e6)
    if (!socket.write(framed)) await Promise.race([once(socket, "drain").catch(() => {}), closed]);
  await until(() => socket.answer !== "" || socket.destroyed);
  socket.destroy();
  return socket.answer;
}

/** Sends `start`, then `drip` repeatedly. @returns how it ended. */
async function stall(port: number, start: string, drip = ""): Promise<string> {
  const socket = openSocket(port);
  socket.write(start);
  const dripping = setInterval(() => drip && socket.writable && socket.write(drip), 250);
  const late = sleep(CUT_OFF_MS, null, { ref: false }).then(() => `holds ${start}${drip}`);
  // A reset also counts as an end: Node's `once` would throw it.
  const ending = new Promise<string>((resolve) => {
    for (const event of ["close", "end"]) socket.on(event, () => resolve("cut off"));
  });
  const end = await Promise.race([ending, late]);
  clearInterval(dripping);
  socket.destroy();
  return end;
}
