import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";

const { Copy } = await import(join(ROOT, "examples/client/copy.ts"));

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
  return () => vi.useRealTimers();
});

test("the example's copy keeps what an event brings back while a walk, which has passed its place, goes on", async () => {
  const { automations } = new Copy("no-such-file.json");
  for (const id of ["removed", "recorded again", "listed"]) automations.put({ id });
  vi.setSystemTime(Date.now() + 61_000);
  async function* pages() {
    automations.put({ id: "recorded again" });
    yield { id: "listed" };
  }
  expect(await automations.replace(pages())).toBe("2 (0 new, 1 gone)");
  expect(automations.toJSON()).toEqual([{ id: "recorded again" }, { id: "listed" }]);
});

test("the example's copy keeps for a minute what a list that lags behind events does not show yet", async () => {
  const { leads } = new Copy("no-such-file.json");
  leads.put({ id: "new" });
  async function* lagging() {}
  expect(await leads.replace(lagging())).toBe("1 (0 new, 0 gone)");
  vi.setSystemTime(Date.now() + 61_000);
  expect(await leads.replace(lagging())).toBe("0 (0 new, 1 gone)");
});

test("the example's copy keeps for a minute, even after a restart, what a list does not show yet", async () => {
  const folder = mkdtempSync(join(tmpdir(), "copy-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "copy.json");
  const stopped = new Copy(file);
  stopped.leads.put({ id: "new" });
  stopped.save();
  const { leads } = new Copy(file);
  async function* lagging() {}
  expect(await leads.replace(lagging())).toBe("1 (0 new, 0 gone)");
  vi.setSystemTime(Date.now() + 61_000);
  expect(await leads.replace(lagging())).toBe("0 (0 new, 1 gone)");
});
