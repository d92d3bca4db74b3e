import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createServer as tcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { askForSecret, parseCall, UsageError } from "../../../scripts/check-receiver/call.ts";
import { adviceFor } from "../../../scripts/check-receiver/connection.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { WebhookDelivery } from "../../../src/events/bodies.ts";
import { SELF_SIGNED } from "../../node/support/certificate.ts";
import { startInTerminal } from "../../node/support/process.ts";
import { type Answer, type Post, startReceiver } from "../../node/support/receiver.ts";
import { freePort } from "../../node/support/server.ts";
import { CHECKER, check, checkHere, checkWith, isGenuine, SECRET } from "../../support/checker.ts";
import { until } from "../../support/until.ts";

const VALID = "accepts a valid delivery";
const AS_SENT = "verifies the body as sent";
const UNSIGNED = "rejects a missing signature";
const WRONG = "rejects a wrong signature";
const CHANGED = "rejects a changed body";
const OLD = "rejects an old timestamp";
const AHEAD = "rejects a future timestamp";
const REPEATED = "accepts a repeated event";
const ROTATED = "accepts a rotated secret";
const PROMPT = "responds within 10 s";
const INVALID = [UNSIGNED, WRONG, CHANGED, OLD, AHEAD];
const ALL = [VALID, AS_SENT, ...INVALID, REPEATED, ROTATED, PROMPT];

/** The delivery as it is seen by a receiver that reads one `v1` of several. */
function withOneV1(post: Post, index: number): Post {
  const header = String(post.headers["x-service-signature"]);
  const parts = header.split(",").filter((part) => part.startsWith("v1="));
  const signature = [header.split(",")[0], parts.at(index)].join();
  return { ...post, headers: { ...post.headers, "x-service-signature": signature } };
}

/** Checks a receiver that answers in this way, in this process, which is quicker. */
async function checkAnswering(answer?: Parameters<typeof startReceiver>[0]) {
  const receiver = await startReceiver(answer);
  const findings = await checkHere(receiver.url);
  await receiver.close();
  const checks = (result: string) =>
    findings.filter((finding) => finding.result === result).map((finding) => finding.check);
  return { findings, checks, posts: receiver.posts };
}

/** The time that a delivery claims, in Unix milliseconds. */
function timeOf({ headers }: Post): number {
  return Number(/^t=(\d+)/.exec(String(headers["x-service-signature"]))?.[1]) * 1000;
}

describe("the checker reports what is wrong with a receiver that", () => {
  const seen = new Set<string>();
  const isRepeated = ({ body }: Post) => {
    const { id } = JSON.parse(body.toString());
    return seen.has(id) || !seen.add(id);
  };
  const repeated = (post: Post) => (!isGenuine(post) ? 401 : isRepeated(post) ? 409 : 204);
  const accepts = (is: (post: Post) => boolean) => (post: Post) => (is(post) ? 204 : 401);
  const ifNot = (status: number) => (post: Post) => (isGenuine(post) ? 204 : status);
  const asOf = (choose: typeof Math.min) =>
    accepts((post) => isGenuine(post, choose(Date.now(), timeOf(post))));
  const ofSignature = (index: number) => accepts((post) => isGenuine(withOneV1(post, index)));
  const untested = [AS_SENT, ...INVALID, REPEATED, ROTATED];

  type Found = { failed?: string[]; unclear?: string[]; "not tested"?: string[] };
  test.each<[string, (post: Post) => number | Promise<number>, Found, says?: string]>([
    ["accepts anything", () => 204, { failed: INVALID }],
    ["ignores how old a timestamp is", asOf(Math.min), { failed: [OLD] }],
    ["ignores how far in the future a timestamp is", asOf(Math.max), { failed: [AHEAD] }],
    [
      "does not compare signatures",
      accepts((post) => Math.abs(Date.now() - timeOf(post)) < 300_000),
      { failed: [WRONG, CHANGED] },
    ],
    ["answers a repeated event with 409", repeated, { failed: [REPEATED] }],
    ["reads into a dictionary, which keeps the last v1", ofSignature(-1), { failed: [ROTATED] }],
    ["reads the first v1 only", ofSignature(0), { failed: [ROTATED] }],
    ["fails with 500 instead of refusing", ifNot(500), { failed: INVALID }],
    ["redirects instead of refusing", ifNot(302), { failed: INVALID }],
    [
      "redirects",
      () => 307,
      { failed: [VALID, ...INVALID], unclear: [AS_SENT, REPEATED, ROTATED] },
      "307 (not followed)",
    ],
    [
      "hangs up instead of refusing, which proves nothing",
      ifNot(0),
      { unclear: [...INVALID, PROMPT] },
      "closed without a response",
    ],
    ["limits requests instead of refusing, which proves nothing", ifNot(429), { unclear: INVALID }],
    ["refuses everything, which proves nothing", () => 401, { failed: [VALID], unclear: untested }],
  ])("%s", async (_name, answer, found, says = "") => {
    const { findings, checks, posts } = await checkAnswering(answer);
    const others = { failed: [], unclear: [], "not tested": [], ...found };
    for (const [result, some] of Object.entries(others)) expect(checks(result)).toEqual(some);
    const passed = ALL.filter((each) => !Object.values(others).flat().includes(each));
    expect(checks("passed")).toEqual(passed);
    expect(findings.map(({ got }) => got).join()).toContain(says);
    expect(posts.map(({ path }) => path)).not.toContain("/elsewhere");
  });

  const atClock = (minutes: number) =>
    accepts((post) => isGenuine(post, Date.now() + minutes * 60_000));
  test.each([
    ["slow", -8],
    ["fast", 8],
  ])("has a %s clock, which it names", async (word, minutes) => {
    const { findings } = await checkAnswering(atClock(minutes));
    const advice = findings.map(({ consequence }) => consequence).join();
    expect(advice).toContain(`the clock of your server is ${word};`);
  });

  test("says another time in its Date header and rejects what is valid: its clock is named", async () => {
    const date = new Date(Date.now() - 3_600_000).toUTCString();
    const server = createServer((request, response) => {
      request.resume();
      response.sendDate = false;
      response.writeHead(401, { Date: date }).end();
    });
    const port = await freePort();
    server.listen(port, "127.0.0.1");
    const findings = await checkHere(`http://127.0.0.1:${port}/`);
    server.close();
    server.closeAllConnections();
    expect(findings[0]?.consequence).toContain("the clock of your server is 60 minutes slow");
  });

  const parsed = (body: Buffer) => JSON.parse(body.toString());
  const escaped = (text: string) =>
    text.replace(/[^ -~]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const each = (change: (value: unknown) => unknown) => (body: Buffer) =>
    JSON.stringify(JSON.parse(body.toString(), (_key, value) => change(value)));
  const isObject = (value: unknown) => typeof value === "object" && value !== null;
  const isEmpty = (value: unknown) => isObject(value) && JSON.stringify(value) === "{}";
  const sorted = (value: unknown) =>
    isObject(value) && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value as object).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  test.each<[string, (body: Buffer) => string]>([
    ["escapes slashes", (body) => JSON.stringify(parsed(body)).replaceAll("/", "\\/")],
    ["escapes what is not ASCII", (body) => escaped(JSON.stringify(parsed(body)))],
    [
      "escapes HTML and plus signs, as .NET",
      (body) =>
        JSON.stringify(parsed(body)).replace(
          /[<>&'+]/g,
          (one) => `\\u00${one.charCodeAt(0).toString(16)}`,
        ),
    ],
    ["escapes U+2028", (body) => JSON.stringify(parsed(body)).replaceAll("\u2028", "\\u2028")],
    ["sorts keys", each(sorted)],
    ["turns empty objects into lists", each((value) => (isEmpty(value) ? [] : value))],
    ["drops empty objects", each((value) => (isEmpty(value) ? undefined : value))],
    ["drops what is null", each((value) => value ?? undefined)],
    [
      "writes small numbers its own way",
      (body) => JSON.stringify(parsed(body)).replace("1e-7", "1e-07"),
    ],
    [
      "rounds large numbers",
      each((value) => (typeof value === "number" ? Number(value.toPrecision(15)) : value)),
    ],
    ["composes accents", each((value) => (typeof value === "string" ? value.normalize() : value))],
    ["trims texts", each((value) => (typeof value === "string" ? value.trim() : value))],
    [
      "adds spaces, as Python",
      (body) =>
        JSON.stringify(parsed(body), null, 1)
          .replace(/\n\s*/g, " ")
          .replace(/([{[]) | (?=[}\]])/g, "$1"),
    ],
    ["indents", (body) => JSON.stringify(parsed(body), null, 4)],
  ])("%s before it verifies", async (_name, rewrite) => {
    const { checks, findings } = await checkAnswering(
      accepts((post) => isGenuine({ ...post, body: Buffer.from(rewrite(post.body)) })),
    );
    expect(checks("failed")).toEqual([VALID, AS_SENT]);
    expect(findings[1]?.consequence).toContain("changes the body before it verifies it");
  });
});

test.each<[string, (body: string) => string]>([
  ["JavaScript", (body) => JSON.stringify(JSON.parse(body))],
  [
    "JavaScript, if that changes a body that is neither indented nor has escapes",
    (body) => (/^\{"/.test(body) ? body : JSON.stringify(JSON.parse(body))),
  ],
  ["a serialiser that keeps numbers as they were written", (body) => body.replaceAll("\\/", "/")],
  ["a serialiser that keeps escapes", (body) => body.replace("32.50", "32.5")],
])(
  "a receiver that writes the body again with %s is found, although it accepts what the service sends",
  async (_name, rewrite) => {
    const { checks, findings } = await checkAnswering((post) =>
      isGenuine({ ...post, body: Buffer.from(rewrite(post.body.toString())) }) ? 204 : 401,
    );
    expect(checks("failed")).toEqual([AS_SENT]);
    expect(findings[1]?.consequence).toContain("changes the body before it verifies it");
  },
);

describe.concurrent("the command says what is wrong with a receiver that", () => {
  test("answers after more than 10 s", async () => {
    const late = () => new Promise<number>((resolve) => setTimeout(resolve, 11_000, 204).unref());
    const receiver = await startReceiver(late);
    const { code, stdout, checks } = await check(receiver.url, "--local");
    await receiver.close();
    expect(checks("failed")).toEqual([VALID, PROMPT]);
    expect(checks("not tested")).toEqual(ALL.slice(1, -1));
    expect(stdout).toContain("no response within 10 s");
    expect(stdout).toContain("\n0 of 10 checks passed, 2 failed, 8 not tested.\n");
    for (const each of [VALID, PROMPT]) expect(stdout).toContain(`\n- ${each}: `);
    expect([code, receiver.posts.length]).toEqual([1, 1]);
  });

  test("refuses connections, and what to check", async () => {
    const { code, stdout, checks } = await check(
      `http://127.0.0.1:${await freePort()}/`,
      "--local",
    );
    expect(stdout).toContain("  connection refused");
    expect(stdout).toContain(
      "\n0 of 10 checks passed, 1 failed, 9 not tested.\nIs your handler running, ",
    );
    expect(checks("failed")).toEqual([VALID]);
    expect(checks("not tested")).toEqual(ALL.slice(1));
    expect(code).toBe(1);
  });
});

// One after the other: the checker finds the reason among all connections of its process.
describe("the checker says why it cannot reach a receiver that", () => {
  const PORT = "Does URL have the port of your handler";
  const plain = () => createServer((_, response) => response.end());
  const cutting = () => tcp((socket) => socket.destroy());
  const talking = () => tcp((socket) => socket.end("SSH-2.0\r\n"));
  const NOWHERE = "https://receiver.invalid/";
  const UNTRUSTED = "The service verifies certificates: ";
  test.each([
    ["refuses connections", () => null, "http", "connection refused", "Is your handler running, "],
    ["has no DNS name", () => null, NOWHERE, "DNS: ", "Is the name in URL correct"],
    ["has no TLS", plain, "https", "TLS: handshake failed", "Does your handler speak https"],
    ["signs for itself", selfSigned, "https", "TLS: certificate is self-signed", UNTRUSTED],
    ["hangs up", cutting, "http", "closed without a response", PORT],
    ["does not speak HTTP", talking, "http", "not HTTP", PORT],
  ])("%s: the reason, and what to check", async (_name, make, scheme, why, advice) => {
    const port = await freePort();
    const server = make();
    server?.listen(port, "127.0.0.1");
    const url = scheme.includes(":") ? scheme : `${scheme}://127.0.0.1:${port}/`;
    const [first, ...others] = await checkHere(url);
    server?.close();
    expect(first).toMatchObject({ check: VALID, result: "failed" });
    expect(first?.got.slice(0, why.length)).toBe(why);
    expect(adviceFor(first?.got ?? "")?.slice(0, advice.length)).toBe(advice);
    expect(others.map(({ check, result }) => [check, result])).toEqual(
      ALL.slice(1).map((check) => [check, "not tested"]),
    );
  });
});

const selfSigned = (answer?: RequestListener) =>
  createSecureServer(SELF_SIGNED, answer ?? ((_, response) => void response.end()));

describe("a receiver behind a gateway, which looks up its secret by X-Service-Webhook", () => {
  const known = "whk_559x8lmvzniqjo9o6wxks3p9p";
  const behind = (post: Post): Answer => {
    if (post.headers["x-gateway-token"] !== "t0ken") return { status: 403, body: "No token." };
    return post.headers["x-service-webhook"] === known && isGenuine(post) ? 204 : 401;
  };

  test("passes with --header", async () => {
    const receiver = await startReceiver(behind);
    const headers = ["X-Gateway-Token: t0ken", `x-service-webhook:${known}`];
    const options = headers.flatMap((header) => ["--header", header]);
    const { code, checks } = await check(receiver.url, "--local", ...options);
    await receiver.close();
    expect([code, checks("passed")]).toEqual([0, ALL]);
  });

  test("gets the headers of a delivery without it, and the report shows what it responded", async () => {
    const receiver = await startReceiver(behind);
    const { code, stdout } = await check(receiver.url, "--local");
    await receiver.close();
    expect(code).toBe(1);
    expect(stdout).toContain("it said: No token.");
    expect(stdout).toContain("--header sends either.");
    const names = Object.keys(receiver.posts[0]?.headers ?? {});
    const expected = ["x-service-signature", "webhook-id", "webhook-timestamp", "user-agent"];
    expect(names).toEqual(expect.arrayContaining([...expected, "x-service-webhook"]));
  });
});

test("a certificate that cannot be verified is accepted with --insecure", async () => {
  const server = selfSigned((request, response) => {
    request.resume();
    response.writeHead(204).end();
  });
  const port = await freePort();
  server.listen(port, "127.0.0.1");
  const { checks, stderr } = await check(`https://127.0.0.1:${port}/`, "--local", "--insecure");
  server.close();
  server.closeAllConnections();
  expect([checks("passed"), stderr]).toEqual([[VALID, AS_SENT, REPEATED, ROTATED, PROMPT], ""]);
});

test("test deliveries have two signatures that are both valid or both invalid", async () => {
  const { posts } = await checkAnswering();
  const labels = posts.map(({ headers }) => headers["x-service-test"]);
  expect(labels).toEqual([
    ...[
      "valid",
      "rewritten",
      "no-signature",
      "wrong-signature",
      "tampered-body",
      "stale",
      "future",
    ],
    ...["repeated", "repeated", "rotated", "rotated"],
  ]);
  const ids = posts.map(({ body }) => WebhookDelivery.parse(JSON.parse(String(body))).id);
  expect(new Set(ids).size).toBe(10);
  expect(ids[7]).toBe(ids[8]);
  expect(String(posts[7]?.body)).toBe(String(posts[8]?.body));

  const standard = new Webhook(SECRET);
  const valid = new Set<string>();
  let accepted = 0;
  for (const { headers, body } of posts) {
    const isValid = ["valid", "rewritten", "repeated", "rotated"].includes(
      String(headers["x-service-test"]),
    );
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
    if (!isValid) continue;
    accepted++;
    valid.add(JSON.parse(String(body)).id);
  }
  const { stdout } = await check("--help");
  expect(stdout).toContain(`Sends ${posts.length} test deliveries`);
  expect(stdout).toContain(`${accepted} of them are valid: `);
  expect(stdout).toContain(`processes ${valid.size} invented leads.`);
});

describe("an incorrect call is explained:", () => {
  const PUBLIC = "https://hooks.example.com/";
  const LOCAL = "127.0.0.1:9/";
  test.each([
    ["no URL", [], SECRET, "URL is missing"],
    ["two URLs", [PUBLIC, PUBLIC], SECRET, "expected one URL, got 2"],
    ["not a URL", ["hooks"], SECRET, "Not a valid URL"],
    ["http", ["http://hooks.example.com/"], SECRET, "URL must start with https://"],
    ["a local receiver over http", [`http://${LOCAL}`], SECRET, "--local"],
    ["a local receiver over https", [`https://${LOCAL}`], SECRET, "--local"],
    ["a private address", ["https://192.168.0.1/"], SECRET, "URL is a private"],
    ["credentials", ["https://a:b@example.com/"], SECRET, "URL must not contain a user"],
    [
      "a header without a name",
      [PUBLIC, "--header", "abc"],
      SECRET,
      '--header: expected a name and a value, such as "X-Token: abc"',
    ],
    ["no secret", [PUBLIC], "", "Set WEBHOOK_SECRET"],
    ["an API key", [PUBLIC], "key_live_1", "WEBHOOK_SECRET must be whsec_"],
    ["half a secret", [PUBLIC], SECRET.slice(0, -5), "WEBHOOK_SECRET must be whsec_"],
    [
      "a secret for all to read",
      [PUBLIC, "--secret", SECRET],
      "",
      "not accepted on the command line",
    ],
  ])("%s", async (_name, args, secret, message) => {
    vi.stubEnv("WEBHOOK_SECRET", secret);
    onTestFinished(() => void vi.unstubAllEnvs());
    const call = async () => {
      parseCall(args);
      await askForSecret();
    };
    const said = await call().then(
      () => expect.unreachable("it is a correct call"),
      (error) => error,
    );
    expect(said).toBeInstanceOf(UsageError);
    expect(said.message).toContain(message);
    expect(said.message).not.toContain(SECRET);
    expect(said.message).not.toContain("\n");
  });

  test("the command prints the explanation, sends nothing, and exits with 2", async () => {
    const receiver = await startReceiver();
    const { code, stdout, stderr } = await check(receiver.url);
    await receiver.close();
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toBe("URL must start with https://; --local also allows http://\n");
    expect(receiver.posts).toEqual([]);
  });
});

test.runIf(process.platform === "linux")(
  "the terminal asks for the secret, and does not show it",
  async () => {
    const receiver = await startReceiver((post) => (isGenuine(post) ? 204 : 401));
    const env = { ...process.env, WEBHOOK_SECRET: "" };
    const run = startInTerminal(`'${CHECKER}' ${receiver.url} --local`, { env });
    await until(() => run.output().includes("The secret of the webhook"));
    run.child.stdin.write(`${SECRET}\r`);
    const { stdout: shown } = await run.ended;
    await receiver.close();
    expect(shown).toContain("10 of 10 checks passed.");
    expect(shown).not.toContain(SECRET.slice(6));
  },
);

/** Removes what Node 20 does not have, except what this Node itself needs. */
const AS_NODE_20 = `data:text/javascript,
  for (const [from, names] of [
    [Uint8Array.prototype, ["toHex", "toBase64", "setFromHex", "setFromBase64"]],
    [Uint8Array, ["fromHex", "fromBase64"]],
    [Object, ["groupBy"]], [Map, ["groupBy"]], [Array, ["fromAsync"]], [RegExp, ["escape"]],
    [Set.prototype, ["union", "intersection", "difference", "isSubsetOf", "isSupersetOf"]],
  ]) for (const name of names) delete from[name];`.replaceAll("\n", " ");

test("the docs page offers the checker as a single file, which also runs on Node 20", async () => {
  const folder = mkdtempSync(join(tmpdir(), "checker-"));
  const file = join(folder, "check-receiver.mjs");
  copyFileSync(join(ROOT, "dist/assets/docs/check-receiver.mjs"), file);
  const receiver = await startReceiver((post) => (isGenuine(post) ? 204 : 401));
  const words = ["--import", AS_NODE_20, file, receiver.url, "--local"];
  const { code, stdout } = await checkWith(SECRET, words);
  const help = await checkWith("", [file, "--help"]);
  await receiver.close();
  rmSync(folder, { recursive: true });
  expect(stdout).toContain("10 of 10 checks passed.");
  expect(code).toBe(0);
  expect(help.stdout).toMatch(/^node check-receiver\.mjs URL /);
});
