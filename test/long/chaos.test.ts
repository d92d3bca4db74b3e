import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const CHAOS = join(import.meta.dirname, "../../scripts/chaos/chaos.ts");

test("nothing is lost while the runtime is killed again and again", { timeout: 300_000 }, () => {
  const args = [CHAOS, "--events", "120", "--kills", "4", "--seed", "5", "--built"];
  const { status, stdout, stderr } = spawnSync("node", args, { encoding: "utf8" });
  expect(stdout, stderr).toMatch(/^events 120, kills 4, .*, lost 0,/m);
  expect(stderr).toContain("120 events, 4 kills, seed 5");
  expect(stdout).not.toContain("FAILED");
  expect(status).toBe(0);
});
