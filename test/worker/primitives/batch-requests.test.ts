import { describe, expect, test, vi } from "vitest";
import { batchRequests } from "../../../src/primitives/batch-requests.ts";
import { sleep } from "../../../src/primitives/timing.ts";

/** A merger whose batches are answered, in capitals, once they are released. */
function merger(members: number) {
  const batches: string[][] = [];
  const answers: (() => void)[] = [];
  const send = vi.fn(async (batch: string[]) => {
    batches.push(batch);
    await new Promise<void>((resolve) => answers.push(resolve));
    return batch.map((one) => one.toUpperCase());
  });
  return { ...batchRequests(members, send), batches, release: () => answers.shift()?.() };
}

const AN_HOUR = 3_600_000;

describe("requests that come at the same moment", () => {
  test("are sent together once nobody else can ask, and each gets its own answer", async () => {
    const { ask, batches, release } = merger(2);
    const answers = [ask("a", AN_HOUR), ask("b", AN_HOUR)];
    expect(batches).toEqual([["a", "b"]]);
    release();
    expect(await Promise.all(answers)).toEqual(["A", "B"]);
  });

  test("wait no longer for others than they may", async () => {
    const { ask, batches } = merger(3);
    ask("patient", AN_HOUR);
    ask("urgent", 5);
    expect(batches).toEqual([]);
    await expect.poll(() => batches).toEqual([["patient", "urgent"]]);
  });

  test("do not wait for a member that has left", () => {
    const { ask, unregister, batches } = merger(2);
    ask("a", AN_HOUR);
    unregister();
    expect(batches).toEqual([["a"]]);
  });

  test("wait while a batch is under way, and then go together", async () => {
    const { ask, batches, release } = merger(3);
    ask("a", 0);
    await expect.poll(() => batches).toEqual([["a"]]);
    ask("b", 0);
    ask("c", AN_HOUR);
    await sleep(5);
    expect(batches).toHaveLength(1);
    release();
    await expect.poll(() => batches).toEqual([["a"], ["b", "c"]]);
  });

  test("fail together, and those that follow do not", async () => {
    const send = vi.fn().mockRejectedValueOnce(new Error("lost")).mockResolvedValue(["A"]);
    const { ask } = batchRequests<string, string>(1, send);
    await expect(ask("a", 0)).rejects.toThrow("lost");
    expect(await ask("a", 0)).toBe("A");
  });
});
