import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { startInTerminal } from "../../node/support/process.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { CHECKER, check, checkWith, isGenuine, SECRET } from "../../support/checker.ts";
import { until } from "../../support/until.ts";

describe.concurrent("an incorrect call is explained, and nothing is sent:", () => {
  const PUBLIC = "https://hooks.example.com/";
  test.each([
    ["no URL", [], SECRET, "URL is missing"],
    ["two URLs", [PUBLIC, PUBLIC], SECRET, "expected one URL, got 2"],
    ["not a URL", ["hooks"], SECRET, "Not a valid URL"],
    ["http", ["http://hooks.example.com/"], SECRET, "URL must start with https://"],
    ["a private address", ["https://192.168.0.1/"], SECRET, "URL is a private"],
    ["credentials", ["https://a:b@example.com/"], SECRET, "URL must not contain a user"],
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
    const { code, stdout, stderr } = await checkWith(secret, [CHECKER, ...args]);
    expect(stderr).toContain(message);
    expect(stderr).not.toContain(SECRET);
    expect(stderr.trim().split("\n")).toHaveLength(1);
    expect(stdout).toBe("");
    expect(code).toBe(2);
  });

  test("a local receiver without --local", async () => {
    const receiver = await startReceiver();
    for (const url of [receiver.url, receiver.url.replace("http:", "https:")]) {
      const told = { code: 2, stderr: expect.stringContaining("--local") };
      expect(await check(url)).toMatchObject(told);
    }
    await receiver.close();
    expect(receiver.posts).toEqual([]);
  });
});

test.runIf(process.platform === "linux")(
  "the terminal asks for the secret, and does not show it",
  async () => {
    const receiver = await startReceiver((post) => (isGenuine(post) ? 204 : 401));
    const env = { ...process.env, WEBHOOK_SECRET: "" };
    const run = startInTerminal(`'${CHECKER}' ${receiver.url} --local`, { env });
    await until(() => run.output().includes("The subscription's secret"), 20_000);
    run.child.stdin.write(`${SECRET}\r`);
    const { stdout: shown } = await run.ended;
    await receiver.close();
    expect(shown).toContain("9 of 9 checks passed.");
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
  expect(stdout).toContain("9 of 9 checks passed.");
  expect(code).toBe(0);
  expect(help.stdout).toMatch(/^node check-receiver\.mjs URL /);
});
