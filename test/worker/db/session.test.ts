import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { EarlyReads } from "../../../src/db/session.ts";

/** A replica whose bookmark is its state. It catches up only with what a session asks for. */
function openReplica() {
  const replica = { state: "1" };
  const withSession = (since: string) => {
    let seen: string | null = null;
    const read = async (query: string) => {
      const state = since > replica.state ? since : replica.state;
      seen = seen === null || seen < state ? state : seen;
      return { results: [{ query, state }] };
    };
    return {
      prepare: (query: string) => ({ bind: () => ({ all: () => read(query) }) }),
      getBookmark: () => seen,
    };
  };
  return { replica, binding: { withSession } as unknown as D1Database };
}

test("an early read that is too old is repeated, even if another one of its request is not", async () => {
  const { replica, binding } = openReplica();
  const required = Promise.withResolvers<{ binding: D1Database; bookmark: string }>();
  const reads = new EarlyReads({ binding, bookmark: "1" }, required.promise);
  const page = reads.prepare("page").bind().all();
  await sleep(1);
  replica.state = "2";
  const key = reads.prepare("key").bind().all();
  await sleep(1);
  required.resolve({ binding, bookmark: "2" });
  expect((await page).results).toEqual([{ query: "page", state: "2" }]);
  expect((await key).results).toEqual([{ query: "key", state: "2" }]);
});

test("an early read that fails is no error of its own if its request is refused", async () => {
  const unhandled = vi.fn<(event: PromiseRejectionEvent) => void>();
  addEventListener("unhandledrejection", unhandled);
  const { binding } = openReplica();
  const lost = () => Promise.reject(new Error("Network connection lost."));
  const refused = Promise.reject(new Error("the request is not admitted"));
  const reads = new EarlyReads({ binding, bookmark: "1" }, refused);
  await expect(reads.execute(lost)).rejects.toThrow("the request is not admitted");
  await sleep(1);
  removeEventListener("unhandledrejection", unhandled);
  expect(unhandled).not.toHaveBeenCalled();
});

test("an early read that is exactly as recent as required is not repeated", async () => {
  const { binding } = openReplica();
  const opened = vi.spyOn(binding, "withSession");
  const point = { binding, bookmark: "1" };
  await new EarlyReads(point, Promise.resolve(point)).prepare("page").bind().all();
  expect(opened).toHaveBeenCalledTimes(1);
});
