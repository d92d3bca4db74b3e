import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createServer as createTcp } from "node:net";
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
const ALL = [VALID, UNSIGNED, WRONG, CHANGED, OLD, AHEAD, REPEATED, ROTATED, PROMPT];

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
      expect(stderr).toBe("");
      expect(checks("passed")).toEqual(ALL);
      expect(stdout).toContain("9 of 9 checks passed.");
      expect(code).toBe(0);
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

  test.each<[string, (post: Post) => number | Promise<number>, string[]]>([
    ["accepts anything", () => 204, [UNSIGNED, WRONG, CHANGED, OLD, AHEAD]],
    [
      "ignores how old a timestamp is",
      (post) => (isGenuine(post, Math.min(Date.now(), timeOf(post))) ? 204 : 401),
      [OLD],
    ],
    [
      "ignores how far in the future a timestamp is",
      (post) => (isGenuine(post, Math.max(Date.now(), timeOf(post))) ? 204 : 401),
      [AHEAD],
    ],
    [
      "does not compare signatures",
      (post) => (Math.abs(Date.now() - timeOf(post)) < 300_000 ? 204 : 401),
      [WRONG, CHANGED],
    ],
    [
      "answers a repeated event with 409",
      (post) => (!isGenuine(post) ? 401 : isRepeated(post) ? 409 : 204),
      [REPEATED],
    ],
    [
      "reads the header into a dictionary, which keeps the last v1",
      (post) => (isGenuine(withOneV1(post, -1)) ? 204 : 401),
      [ROTATED],
    ],
    ["reads the first v1 only", (post) => (isGenuine(withOneV1(post, 0)) ? 204 : 401), [ROTATED]],
    [
      "fails with 500 instead of refusing",
      (post) => (isGenuine(post) ? 204 : 500),
      [UNSIGNED, WRONG, CHANGED, OLD, AHEAD],
    ],
    [
      "redirects instead of refusing",
      (post) => (isGenuine(post) ? 204 : 302),
      [UNSIGNED, WRONG, CHANGED, OLD, AHEAD],
    ],
  ])("%s", async (_name, answer, failed) => {
    const receiver = await startReceiver(answer);
    const { code, stdout, checks } = await check(receiver.url, "--local");
    await receiver.close();
    expect(checks("failed")).toEqual(failed);
    expect(checks("passed")).toEqual(ALL.filter((check) => !failed.includes(check)));
    for (const each of failed) expect(stdout).toContain(`\n- ${each}: `);
    expect(code).toBe(1);
  });

  test("answers after more than 10 s", async () => {
    const late = () => new Promise<number>((resolve) => setTimeout(resolve, 11_000, 204).unref());
    const receiver = await startReceiver(late);
    const { code, stdout, checks } = await check(receiver.url, "--local");
    await receiver.close();
    expect(checks("failed")).toEqual([VALID, PROMPT]);
    expect(checks("not tested")).toEqual(
      ALL.filter((check) => check !== VALID && check !== PROMPT),
    );
    expect(stdout).toContain("no answer in 10 s");
    expect(receiver.posts).toHaveLength(1);
    expect(code).toBe(1);
  });

  test("redirects", async () => {
    const receiver = await startReceiver(() => 307);
    const { code, stdout, checks } = await check(receiver.url, "--local");
    await receiver.close();
    expect(checks("failed")).toEqual([VALID, UNSIGNED, WRONG, CHANGED, OLD, AHEAD]);
    expect(stdout).toContain("307 (not followed)");
    expect(receiver.posts.map(({ path }) => path)).not.toContain("/elsewhere");
    expect(code).toBe(1);
  });

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
      () => createServer((_, response) => response.end()),
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
    [
      "hangs up",
      () => createTcp((socket) => socket.destroy()),
      "http",
      "closed without an answer",
      "Does URL have the receiver's port",
    ],
    [
      "does not speak HTTP",
      () => createTcp((socket) => socket.end("SSH-2.0\r\n")),
      "http",
      "not HTTP",
      "Does URL have the receiver's port",
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

  test("hangs up instead of refusing, which proves nothing", async () => {
    const receiver = await startReceiver((post) => (isGenuine(post) ? 204 : 0));
    const { code, stdout, checks } = await check(receiver.url, "--local");
    await receiver.close();
    expect(checks("passed")).toEqual([VALID, REPEATED, ROTATED]);
    expect(checks("unclear")).toEqual([UNSIGNED, WRONG, CHANGED, OLD, AHEAD, PROMPT]);
    expect(stdout).toContain("\n3 of 9 checks passed, 6 unclear.\n");
    expect(code).toBe(1);
  });
});

async function selfSigned() {
  const { private: key, cert } = await generate([{ name: "commonName", value: "localhost" }]);
  return createSecureServer({ key, cert }, (_, response) => response.end());
}

test("a refusal proves nothing if valid deliveries are refused too, or requests are limited", async () => {
  for (const [answer, passed] of [
    [() => 401, [PROMPT]],
    [(post: Post) => (isGenuine(post) ? 204 : 429), [VALID, REPEATED, ROTATED, PROMPT]],
  ] as const) {
    const receiver = await startReceiver(answer);
    const { code, checks } = await check(receiver.url, "--local");
    await receiver.close();
    expect(checks("passed")).toEqual(passed);
    expect(checks("unclear")).toEqual(
      expect.arrayContaining([UNSIGNED, WRONG, CHANGED, OLD, AHEAD]),
    );
    expect(code).toBe(1);
  }
});

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
