import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createServer as tcp } from "node:net";
import { generate } from "selfsigned";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { describe, expect, test } from "vitest";
import { WebhookDelivery } from "../../../src/webhooks/bodies.ts";
import { freePort, RECEIVERS, reasonToSkip } from "../../node/support/examples.ts";
import { type Post, startReceiver } from "../../node/support/receiver.ts";
import { check, isGenuine, SECRET } from "../../support/checker.ts";

const VALID = "accepts a valid delivery";
const UNSIGNED = "refuses a missing signature";
const WRONG = "refuses a wrong signature";
const CHANGED = "refuses a changed body";
const OLD = "refuses an old timestamp";
const AHEAD = "refuses a future timestamp";
const REPEATED = "accepts a repeated event";
const ROTATED = "accepts a rotated secret";
const PROMPT = "answers within 10 s";
const INVALID = [UNSIGNED, WRONG, CHANGED, OLD, AHEAD];
const ALL = [VALID, ...INVALID, REPEATED, ROTATED, PROMPT];

/** The delivery as it is seen by a receiver that reads one `v1` of several. */
function withOneV1(post: Post, index: number): Post {
  const header = String(post.headers["x-service-signature"]);
  const parts = header.split(",").filter((part) => part.startsWith("v1="));
  const signature = [header.split(",")[0], parts.at(index)].join();
  return { ...post, headers: { ...post.headers, "x-service-signature": signature } };
}

/** The time that a delivery claims, in Unix milliseconds. */
function timeOf({ headers }: Post): number {
  return Number(/^t=(\d+)/.exec(String(headers["x-service-signature"]))?.[1]) * 1000;
}

describe.concurrent("all checks pass for", () => {
  for (const example of RECEIVERS) {
    const reason = reasonToSkip(example);
    const title = `examples/receivers/${example.file}${reason ? ` (skipped: ${reason})` : ""}`;
    test.skipIf(reason !== null)(title, async () => {
      const port = await freePort();
      const receiver = await example.start(port, SECRET);
      const url = `http://127.0.0.1:${port}/webhooks`;
      const { code, stdout, stderr, checks } = await check(url, "--local");
      await receiver.stop();
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(checks("passed")).toEqual(ALL);
      expect(stdout).toContain("9 of 9 checks passed.");
      expect(receiver.lines).toHaveLength(4);
    });
  }
});

describe.concurrent("the checker reports what is wrong with a receiver that", () => {
  const seen = new Set<string>();
  const isRepeated = ({ body }: Post) => {
    const { id } = JSON.parse(body.toString());
    return seen.has(id) || !seen.add(id);
  };

  const repeated = (post: Post) => (!isGenuine(post) ? 401 : isRepeated(post) ? 409 : 204);
  const late = () => new Promise<number>((resolve) => setTimeout(resolve, 11_000, 204).unref());
  const accepts = (is: (post: Post) => boolean, otherwise = 401) => {
    return (post: Post) => (is(post) ? 204 : otherwise);
  };
  const ifNot = (status: number) => accepts((post) => isGenuine(post), status);

  type Found = { failed?: string[]; unclear?: string[]; "not tested"?: string[] };
  test.each<[string, (post: Post) => number | Promise<number>, Found, says?: string]>([
    ["accepts anything", () => 204, { failed: INVALID }],
    [
      "ignores how old a timestamp is",
      accepts((post) => isGenuine(post, Math.min(Date.now(), timeOf(post)))),
      { failed: [OLD] },
    ],
    [
      "ignores how far in the future a timestamp is",
      accepts((post) => isGenuine(post, Math.max(Date.now(), timeOf(post)))),
      { failed: [AHEAD] },
    ],
    [
      "does not compare signatures",
      accepts((post) => Math.abs(Date.now() - timeOf(post)) < 300_000),
      { failed: [WRONG, CHANGED] },
    ],
    ["answers a repeated event with 409", repeated, { failed: [REPEATED] }],
    [
      "reads the header into a dictionary, which keeps the last v1",
      accepts((post) => isGenuine(withOneV1(post, -1))),
      { failed: [ROTATED] },
    ],
    [
      "reads the first v1 only",
      accepts((post) => isGenuine(withOneV1(post, 0))),
      { failed: [ROTATED] },
    ],
    ["fails with 500 instead of refusing", ifNot(500), { failed: INVALID }],
    ["redirects instead of refusing", ifNot(302), { failed: INVALID }],
    [
      "redirects",
      () => 307,
      { failed: [VALID, ...INVALID], unclear: [REPEATED, ROTATED] },
      "307 (not followed)",
    ],
    [
      "answers after more than 10 s",
      late,
      { failed: [VALID, PROMPT], "not tested": [...INVALID, REPEATED, ROTATED] },
      "no answer in 10 s",
    ],
    [
      "hangs up instead of refusing, which proves nothing",
      ifNot(0),
      { unclear: [...INVALID, PROMPT] },
      "\n3 of 9 checks passed, 6 unclear.\n",
    ],
    ["limits requests instead of refusing, which proves nothing", ifNot(429), { unclear: INVALID }],
    [
      "refuses everything, which proves nothing",
      () => 401,
      { failed: [VALID], unclear: [...INVALID, REPEATED, ROTATED] },
    ],
  ])("%s", async (_name, answer, found, says = "") => {
    const receiver = await startReceiver(answer);
    const { code, stdout, checks } = await check(receiver.url, "--local");
    await receiver.close();
    const others = { failed: [], unclear: [], "not tested": [], ...found };
    for (const [result, some] of Object.entries(others)) expect(checks(result)).toEqual(some);
    const passed = ALL.filter((each) => !Object.values(others).flat().includes(each));
    expect(checks("passed")).toEqual(passed);
    for (const each of others.failed) expect(stdout).toContain(`\n- ${each}: `);
    expect(stdout).toContain(says);
    expect(code).toBe(1);
    expect(receiver.posts.map(({ path }) => path)).not.toContain("/elsewhere");
    if (answer === late) expect(receiver.posts).toHaveLength(1);
  });

  const PORT = "Does URL have the receiver's port";
  const plain = () => createServer((_, response) => response.end());
  test.each([
    ["refuses connections", () => null, "http", "connection refused", "Is the receiver running, "],
    [
      "has no DNS name",
      () => null,
      "https://receiver.invalid/",
      "DNS: ",
      "Is the name in URL correct",
    ],
    [
      "does not speak TLS",
      plain,
      "https",
      "TLS: handshake failed",
      "Does the receiver speak https",
    ],
    [
      "has a self-signed certificate",
      selfSigned,
      "https",
      "TLS: certificate is self-signed",
      "The service verifies certificates: ",
    ],
    ["hangs up", () => tcp((socket) => socket.destroy()), "http", "closed without an answer", PORT],
    [
      "does not speak HTTP",
      () => tcp((socket) => socket.end("SSH-2.0\r\n")),
      "http",
      "not HTTP",
      PORT,
    ],
  ])("%s: the reason, and what to check", async (_name, make, scheme, why, advice) => {
    const port = await freePort();
    const server = await make();
    server?.listen(port, "127.0.0.1");
    const url = scheme.includes(":") ? scheme : `${scheme}://127.0.0.1:${port}/`;
    const { code, stdout, checks } = await check(url, "--local");
    server?.close();
    expect(stdout).toContain(`  ${why}`);
    expect(stdout).toContain(`\n0 of 9 checks passed, 1 failed, 8 not tested.\n${advice}`);
    expect(checks("failed")).toEqual([VALID]);
    expect(checks("not tested")).toEqual(ALL.slice(1));
    expect(code).toBe(1);
  });
});

async function selfSigned() {
  const { private: key, cert } = await generate([{ name: "commonName", value: "localhost" }]);
  return createSecureServer({ key, cert }, (_, response) => response.end());
}

test("test deliveries are labelled, and their two signatures are both valid or both invalid", async () => {
  const receiver = await startReceiver();
  await check(receiver.url, "--local");
  await receiver.close();
  const labels = receiver.posts.map(({ headers }) => headers["x-service-test"]);
  expect(labels).toEqual([
    ...["valid", "no-signature", "wrong-signature", "tampered-body", "stale", "future"],
    ...["repeated", "repeated", "rotated", "rotated"],
  ]);
  const ids = receiver.posts.map(({ body }) => WebhookDelivery.parse(JSON.parse(String(body))).id);
  expect(new Set(ids).size).toBe(9);
  expect(ids[6]).toBe(ids[7]);
  expect(String(receiver.posts[6]?.body)).toBe(String(receiver.posts[7]?.body));

  const standard = new Webhook(SECRET);
  for (const { headers, body } of receiver.posts) {
    const isValid = ["valid", "repeated", "rotated"].includes(String(headers["x-service-test"]));
    const at = Number(/^t=(\d+)/.exec(String(headers["x-service-signature"]))?.[1]);
    const tooFarAhead = at - Date.now() / 1000 > 300;
    const service = () => {
      Stripe.webhooks.constructEvent(body, headers["x-service-signature"] ?? "", SECRET);
      if (tooFarAhead) throw new Error("ahead");
    };
    const verify = () => standard.verify(body, headers as Record<string, string>);
    for (const family of [service, verify])
      if (isValid) expect(family).not.toThrow();
      else expect(family).toThrow();
  }
});
