import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { mintSecret, signatureHeaders } from "../../../src/webhooks/signature.ts";
import {
  type Example,
  freePort,
  RECEIVERS,
  type RunningExample,
  reasonToSkip,
} from "../../node/support/examples.ts";

const SECRET = mintSecret();
const BIG_BYTES = 100_000_000;
/** How much a receiver's memory may grow over four concurrent large bodies, in bytes. */
const GROWTH_MAX = 60_000_000;
/** By when a stalling sender must have been cut off. */
const CUT_OFF_MS = 20_000;

for (const example of RECEIVERS) {
  const reason = reasonToSkip(example);
  const title = `examples/receivers/${example.file}${reason ? ` (skipped: ${reason})` : ""}`;
  describe.skipIf(reason !== null)(title, () => describeReceiver(example));
}

/**
 * A script cannot control what `php -S` keeps of a request, and for how long; the web server in
 * front of a production PHP limits both.
 */
function isBehindServer({ file }: Example): boolean {
  return file === "receiver.php";
}

function describeReceiver(example: Example) {
  let receiver: RunningExample;
  let port: number;

  beforeAll(async () => {
    port = await freePort();
    receiver = await example.start(port, SECRET);
  });

  afterAll(() => receiver?.stop());

  test("accepts the largest possible delivery", async () => {
    expect(await deliver(port, "evt_large", "x".repeat(1_100_000))).toBeOneOf([200, 204]);
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
      expect(await deliver(port, `evt_after_${header.length}`)).toBeOneOf([200, 204]);
    },
  );

  test.runIf(isBehindServer(example))("rejects a body of 100 MB", async () => {
    expect(await sendBig(port, `Content-Length: ${BIG_BYTES}`)).toMatch(/^HTTP\/1\.\d 413 /);
  });

  test.runIf(isBehindServer(example))(
    "stores processed ids where no other user can read them",
    async () => {
      expect(await deliver(port, "evt_kept")).toBe(204);
      const folder = join(receiver.folder, ".local/state/webhook-events");
      expect(statSync(folder).mode & 0o777).toBe(0o700);
      const files = readdirSync(folder);
      expect(files.length).toBeGreaterThan(0);
      for (const file of files) expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
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
    test.skipIf(reasonToSkip(example) !== null)(example.file, async ({ onTestFinished }) => {
      const port = await freePort();
      const receiver = await example.start(port, SECRET);
      onTestFinished(() => receiver.stop());
      const stalling = starts.map(([start, drip]) => stall(port, start, drip));
      await sleep(1_000);
      expect(await deliver(port, "evt_meanwhile")).toBeOneOf([200, 204]);
      const ends = await Promise.all(stalling);
      if (!isBehindServer(example)) expect(ends).toEqual(ends.map(() => "cut off"));
      expect(await deliver(port, "evt_afterwards")).toBeOneOf([200, 204]);
    });
});

async function deliver(port: number, id: string, more = ""): Promise<number> {
  const body = JSON.stringify({ id, type: "lead.created", data: {}, more });
  const headers = await signatureHeaders(SECRET, id, body, Date.now());
  const answer = await fetch(`http://127.0.0.1:${port}/`, { method: "POST", headers, body });
  return answer.status;
}

/** The peak memory of a process, in bytes. */
function peakMemory(pid: number): number {
  const [, kilobytes] = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1024;
}

function open(port: number): Socket & { answer: string } {
  const socket = Object.assign(connect(port, "127.0.0.1"), { answer: "" });
  socket.on("data", (chunk) => {
    socket.answer += chunk;
  });
  socket.on("error", () => {});
  return socket;
}

/** Sends a body of 100 MB for as long as it is accepted. @returns the response. */
async function sendBig(port: number, header: string): Promise<string> {
  const socket = open(port);
  const closed = once(socket, "close").catch(() => {});
  socket.write(`POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n${header}\r\n\r\n`);
  const piece = Buffer.alloc(1_000_000, "x");
  const framed = header.startsWith("Transfer")
    ? Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")])
    : piece;
  for (let sent = 0; sent < BIG_BYTES && socket.writable && socket.answer === ""; sent += 1e6)
    if (!socket.write(framed)) await Promise.race([once(socket, "drain").catch(() => {}), closed]);
  await Promise.race([closed, sleep(5_000, null, { ref: false })]);
  socket.destroy();
  return socket.answer;
}

/** Sends `start`, then `drip` repeatedly. @returns how it ended. */
async function stall(port: number, start: string, drip = ""): Promise<string> {
  const socket = open(port);
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
