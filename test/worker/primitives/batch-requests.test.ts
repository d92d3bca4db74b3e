import { describe, expect, test, vi } from "vitest";
import { batchRequests } from "../../../src/primitives/batch-requests.ts";
import { sleep } from "../../../src/primitives/timing.ts";

/** Batches requests, and responds to each batch in capitals once it is released. */
function batcher(callers: number) {
  const batches: string[][] = [];
  const responses: (() => void)[] = [];
  const send = vi.fn(async (batch: string[]) => {
    batches.push(batch);
    await new Promise<void>((resolve) => responses.push(resolve));
    return batch.map((one) => one.toUpperCase());
  });
  return { ...batchRequests(callers, send), batches, release: () => responses.shift()?.() };
}

const AN_HOUR = 3_600_000;

describe("requests that come at the same moment", () => {
  test("are sent together once every caller waits, and each gets its own response", async () => {
    const { add, batches, release } = batcher(2);
    const responses = [add("a", AN_HOUR), add("b", AN_HOUR)];
    expect(batches).toEqual([["a", "b"]]);
    release();
    expect(await Promise.all(responses)).toEqual(["A", "B"]);
  });

  test("wait no longer for others than they may", async () => {
    const { add, batches } = batcher(3);
    add("patient", AN_HOUR);
    add("urgent", 5);
    expect(batches).toEqual([]);
    await expect.poll(() => batches).toEqual([["patient", "urgent"]]);
  });

  test("do not wait for a caller that has unregistered", () => {
    const { add, unregister, batches } = batcher(2);
    add("a", AN_HOUR);
    unregister();
    expect(batches).toEqual([["a"]]);
  });

  test("wait while a batch is being sent, and then share the next one", async () => {
    const { add, batches, release } = batcher(3);
    add("a", 0);
    await expect.poll(() => batches).toEqual([["a"]]);
    add("b", 0);
    add("c", AN_HOUR);
    await sleep(5);
    expect(batches).toHaveLength(1);
    release();
    await expect.poll(() => batches).toEqual([["a"], ["b", "c"]]);
  });

  test("fail together, and those that follow do not", async () => {
    const send = vi.fn().mockRejectedValueOnce(new Error("lost")).mockResolvedValue(["A"]);
    const { add } = batchRequests<string, string>(1, send);
    await expect(add("a", 0)).rejects.toThrow("lost");
    expect(await add("a", 0)).toBe("A");
  });
});
