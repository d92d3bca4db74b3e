import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";

test("the example's copy keeps what an event brings back while a walk, which has passed its place, goes on", async () => {
  const { Copy } = await import(join(ROOT, "examples/client/copy.ts"));
  const { automations } = new Copy("no-such-file.json");
  for (const id of ["removed", "recorded again", "listed"]) automations.put({ id });
  async function* pages() {
    automations.put({ id: "recorded again" });
    yield { id: "listed" };
  }
  expect(await automations.replace(pages())).toBe("2 (0 new, 1 gone)");
  expect(automations.toJSON()).toEqual([{ id: "recorded again" }, { id: "listed" }]);
});
