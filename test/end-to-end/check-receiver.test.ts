import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { describe, expect, test } from "vitest";
import { ROOT } from "../../scripts/checkout.ts";
import { signatureFault } from "../../scripts/receiver.ts";
import { WebhookDelivery } from "../../src/contract/resources.ts";
import { mintSecret } from "../../src/delivery/signature.ts";
import { type Example, freePort, RECEIVERS, reasonToSkip } from "../support/examples.ts";
import { type Post, startReceiver } from "../support/receiver.ts";

const SECRET = mintSecret();

const VALID = "accepts what is right";
const UNSIGNED = "refuses what is unsigned";
const WRONG = "refuses a wrong signature";
const CHANGED = "refuses a changed body";
const OLD = "refuses an old time";
const AHEAD = "refuses a time ahead";
const REPEATED = "accepts a repetition";
const PROMPT = "answers within 10 s";
const ALL = [VALID, UNSIGNED, WRONG, CHANGED, OLD, AHEAD, REPEATED, PROMPT];

/** What the command prints and its exit code; the duties by their verdict. */
async function check(...args: string[]) {
  const child = spawn(process.execPath, [join(ROOT, "scripts/check-receiver.ts"), ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk) => {
    stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  const rows = stdout.split("\n").map((line) => line.split(/ {2,}/));
  const duties = (verdict: string) =>
    rows.filter((row) => row.length === 5 && row[4] === verdict).map(([duty]) => duty);
  return { code, stdout, stderr, duties };
}

/** The time that a delivery claims, in Unix milliseconds. */
function timeOf({ headers }: Post): number {
  return Number(/^t=(\d+)/.exec(String(headers["x-service-signature"]))?.[1]) * 1000;
}

function isGenuine(post: Post, now = Date.now()): boolean {
  return signatureFault(SECRET, post.headers["x-service-signature"], post.body, now) === null;
}

describe.concurrent("the checker finds every duty fulfilled by", () => {
  for (const example of RECEIVERS) {
    const reason = reasonToSkip(example);
    const title = `examples/receivers/${example.file}${reason ? ` (skipped: ${reason})` : ""}`;
    test.skipIf(reason !== null)(title, async () => {
      const port = await freePort();
      const receiver = await example.start(port, SECRET);
      const url = `http://127.0.0.1:${port}/webhooks`;
      const { code, stdout, stderr, duties } = await check(url, "--secret", SECRET, "--local");
      await receiver.stop();
      expect(stderr).toBe("");
      expect(duties("fulfilled")).toEqual(ALL);
      expect(stdout).toContain("8 of 8 duties are fulfilled.");
      expect(code).toBe(0);
      expect(receiver.lines).toHaveLength(2);
    });
  }
});

test("docs/webhooks.md shows what the checker prints", async () => {
  const [example] = RECEIVERS as [Example];
  const port = await freePort();
  const receiver = await example.start(port, SECRET);
  const url = `http://127.0.0.1:${port}/webhooks`;
  const { stdout } = await check(url, "--secret", SECRET, "--local");
  await receiver.stop();
  const shown = /```\n(duty [^`]+)```/.exec(readFileSync(join(ROOT, "docs/webhooks.md"), "utf8"));
  const withoutTimes = (text = "") => text.replace(/\d+ ms/g, "ms").replace(/ {2,}/g, "  ");
  expect(withoutTimes(stdout)).toBe(withoutTimes(shown?.[1]));
});

describe.concurrent("the checker names what is broken by a receiver that", () => {
  const seen = new Set<string>();
  const isRepeated = ({ body }: Post) => {
    const { id } = JSON.parse(body.toString());
    return seen.has(id) || !seen.add(id);
  };

  test.each<[string, (post: Post) => number | Promise<number>, string[]]>([
    ["accepts anything", () => 204, [UNSIGNED, WRONG, CHANGED, OLD, AHEAD]],
    [
      "ignores how old a delivery is",
      (post) => (isGenuine(post, Math.min(Date.now(), timeOf(post))) ? 204 : 401),
      [OLD],
    ],
    [
      "ignores how far ahead a delivery is",
      (post) => (isGenuine(post, Math.max(Date.now(), timeOf(post))) ? 204 : 401),
      [AHEAD],
    ],
    [
      "compares nothing",
      (post) => (Math.abs(Date.now() - timeOf(post)) < 300_000 ? 204 : 401),
      [WRONG, CHANGED],
    ],
    [
      "answers what it knows with 409",
      (post) => (!isGenuine(post) ? 401 : isRepeated(post) ? 409 : 204),
      [REPEATED],
    ],
    [
      "breaks down over what it should refuse",
      (post) => (isGenuine(post) ? 204 : 500),
      [UNSIGNED, WRONG, CHANGED, OLD, AHEAD],
    ],
    [
      "redirects what it should refuse",
      (post) => (isGenuine(post) ? 204 : 302),
      [UNSIGNED, WRONG, CHANGED, OLD, AHEAD],
    ],
  ])("%s", async (_name, answer, broken) => {
    const receiver = await startReceiver(answer);
    const { code, stdout, duties } = await check(receiver.url, "--secret", SECRET, "--local");
    await receiver.close();
    expect(duties("broken")).toEqual(broken);
    expect(duties("fulfilled")).toEqual(ALL.filter((duty) => !broken.includes(duty)));
    for (const duty of broken) expect(stdout).toContain(`\n- ${duty}: `);
    expect(code).toBe(1);
  });

  test("answers after more than 10 s", async () => {
    const late = () => new Promise<number>((resolve) => setTimeout(resolve, 11_000, 204).unref());
    const receiver = await startReceiver(late);
    const { code, stdout, duties } = await check(receiver.url, "--secret", SECRET, "--local");
    await receiver.close();
    expect(duties("broken")).toEqual([VALID, PROMPT]);
    expect(duties("not sent")).toEqual(ALL.filter((duty) => duty !== VALID && duty !== PROMPT));
    expect(stdout).toContain("no answer in 10 s");
    expect(receiver.posts).toHaveLength(1);
    expect(code).toBe(1);
  });

  test("redirects", async () => {
    const receiver = await startReceiver(() => 307);
    const { code, stdout, duties } = await check(receiver.url, "--secret", SECRET, "--local");
    await receiver.close();
    expect(duties("broken")).toEqual([VALID, UNSIGNED, WRONG, CHANGED, OLD, AHEAD]);
    expect(stdout).toContain("307 (not followed)");
    expect(receiver.posts.map(({ path }) => path)).not.toContain("/elsewhere");
    expect(code).toBe(1);
  });

  test("is not there", async () => {
    const url = `http://127.0.0.1:${await freePort()}/`;
    const { code, stdout, duties } = await check(url, "--secret", SECRET, "--local");
    expect(duties("broken")).toEqual([VALID]);
    expect(duties("not sent")).toEqual(ALL.slice(1));
    expect(stdout).toContain("no connection");
    expect(code).toBe(1);
  });
});

test("a refusal proves nothing where what is right is refused, or where requests are counted", async () => {
  for (const [answer, fulfilled] of [
    [() => 401, [PROMPT]],
    [(post: Post) => (isGenuine(post) ? 204 : 429), [VALID, REPEATED, PROMPT]],
  ] as const) {
    const receiver = await startReceiver(answer);
    const { code, duties } = await check(receiver.url, "--secret", SECRET, "--local");
    await receiver.close();
    expect(duties("fulfilled")).toEqual(fulfilled);
    expect(duties("unclear")).toEqual(
      expect.arrayContaining([UNSIGNED, WRONG, CHANGED, OLD, AHEAD]),
    );
    expect(code).toBe(1);
  }
});

test("the test deliveries say what they are, and both signatures are right or wrong together", async () => {
  const receiver = await startReceiver();
  await check(receiver.url, "--secret", SECRET, "--local");
  await receiver.close();
  const labels = receiver.posts.map(({ headers }) => headers["x-service-test"]);
  expect(labels).toEqual([
    ...["valid", "no-signature", "wrong-signature", "tampered-body", "stale", "future"],
    ...["repeated", "repeated"],
  ]);
  const ids = receiver.posts.map(({ body }) => WebhookDelivery.parse(JSON.parse(String(body))).id);
  expect(new Set(ids).size).toBe(7);
  expect(ids[6]).toBe(ids[7]);
  expect(String(receiver.posts[6]?.body)).toBe(String(receiver.posts[7]?.body));

  const standard = new Webhook(SECRET);
  for (const { headers, body } of receiver.posts) {
    const isRight = ["valid", "repeated"].includes(String(headers["x-service-test"]));
    const at = Number(/^t=(\d+)/.exec(String(headers["x-service-signature"]))?.[1]);
    const tooFarAhead = at - Date.now() / 1000 > 300;
    const service = () => {
      Stripe.webhooks.constructEvent(body, headers["x-service-signature"] ?? "", SECRET);
      if (tooFarAhead) throw new Error("ahead");
    };
    const verify = () => standard.verify(body, headers as Record<string, string>);
    for (const family of [service, verify])
      if (isRight) expect(family).not.toThrow();
      else expect(family).toThrow();
  }
});

describe.concurrent("the checker says what is wrong with its call, and sends nothing:", () => {
  const PUBLIC = "https://hooks.example.com/";
  test.each([
    ["no URL", ["--secret", SECRET], "URL is missing"],
    ["two URLs", [PUBLIC, PUBLIC, "--secret", SECRET], "one URL is expected, not 2"],
    ["no URL at all", ["hooks", "--secret", SECRET], "URL is none"],
    ["http", ["http://hooks.example.com/", "--secret", SECRET], "URL must begin with https://"],
    ["a private address", ["https://192.168.0.1/", "--secret", SECRET], "URL leads to a private"],
    ["credentials", ["https://a:b@example.com/", "--secret", SECRET], "URL must hold no user"],
    ["no secret", [PUBLIC], "--secret is missing"],
    ["an API key", [PUBLIC, "--secret", "key_live_1"], "--secret must be whsec_"],
    ["half a secret", [PUBLIC, "--secret", SECRET.slice(0, -5)], "--secret must be whsec_"],
    ["a secret without a value", [PUBLIC, "--secret"], "Option '--secret <value>'"],
    ["another option", [PUBLIC, "--secret", SECRET, "--force"], "Unknown option '--force'"],
  ])("%s", async (_name, args, message) => {
    const { code, stdout, stderr } = await check(...args);
    expect(stderr).toContain(message);
    expect(stderr.trim().split("\n")).toHaveLength(1);
    expect(stdout).toBe("");
    expect(code).toBe(2);
  });

  test("a local receiver without --local", async () => {
    const receiver = await startReceiver();
    const { code, stderr } = await check(receiver.url, "--secret", SECRET);
    const secure = await check(receiver.url.replace("http:", "https:"), "--secret", SECRET);
    await receiver.close();
    expect(stderr).toContain("--local");
    expect(secure.stderr).toContain("--local");
    expect([code, secure.code]).toEqual([2, 2]);
    expect(receiver.posts).toEqual([]);
  });
});
