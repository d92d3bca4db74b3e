import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { D1_ERRORS } from "../../src/db/errors.ts";

const CHAOS = join(import.meta.dirname, "../../scripts/chaos/chaos.ts");

test("nothing is lost while the runtime is killed, and every error of D1's table is met", {
  timeout: 900_000,
}, () => {
  const counts = ["--events", "60", "--kills", "2", "--faults", "25", "--seed", "5"];
  const args = [CHAOS, ...counts, "--built"];
  const { status, stdout, stderr } = spawnSync("node", args, { encoding: "utf8" });
  expect(stdout, stderr).toMatch(/^events \d+, kills 2, .*, lost 0, failures 0, seed 5,/m);
  expect(stdout).not.toContain("FAILED");
  expect(status).toBe(0);
  // How often before the call was carried out, and after; "–" if that is known not to happen.
  const count = String.raw`[1-9]\d* / ([1-9]\d*|–)`;
  for (const { message } of D1_ERRORS) {
    const line = stdout.split("\n").find((text) => text.startsWith(`D1_ERROR: ${message} `));
    expect(line, message).toMatch(new RegExp(`  D1 batch ${count}, D1 query ${count}$`));
  }
});
