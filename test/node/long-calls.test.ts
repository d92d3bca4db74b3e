import { expect, test } from "vitest";
import { callMethod } from "../../scripts/platform/call.ts";
import type { PlatformClient } from "../../scripts/shared/platform-client.ts";

/** Runs `npm run platform` on a platform that returns these outputs, one per call. */
async function runOn(outputs: object[], ...args: string[]) {
  const inputs: object[] = [];
  const call = async (_method: string, input: object) => {
    inputs.push(input);
    return outputs[inputs.length - 1] ?? expect.unreachable("one call too many");
  };
  const platform = { call, [Symbol.asyncDispose]: async () => {} } as unknown as PlatformClient;
  const shown = await callMethod([...args, "--json", "--actor", "Ada"], async () => platform);
  return { inputs, output: JSON.parse(shown ?? "null") };
}

test("a list in a terminal skips empty pages, and stops at the first one with items", async () => {
  const pages = [
    { items: [], nextCursor: "a" },
    { items: [], nextCursor: "b" },
    { items: [{ workspaceId: "wks_1" }], nextCursor: "c" },
  ];
  const { inputs, output } = await runOn(pages, "listWorkspaces", '{ "name": "x" }');
  const input = { actor: "Ada", name: "x" };
  expect(inputs).toEqual([input, { ...input, cursor: "a" }, { ...input, cursor: "b" }]);
  expect(output).toEqual(pages[2]);
});

test("a list in a terminal that fails behind empty pages says where to continue", async () => {
  const pages = [
    { items: [], nextCursor: "a" },
    { items: [], nextCursor: "b" },
  ];
  await expect(runOn(pages, "listWorkspaces", '{ "name": "x" }')).rejects.toThrow(
    `Continue with '{"name":"x","cursor":"b"}'`,
  );
});

test("a list in a terminal is empty if its last page is empty", async () => {
  const pages = [
    { items: [], nextCursor: "a" },
    { items: [], nextCursor: null },
  ];
  const { inputs, output } = await runOn(pages, "listWorkspaces", '{ "name": "x" }');
  expect(inputs).toHaveLength(2);
  expect(output).toEqual({ items: [], nextCursor: null });
});

test("resealSecrets in a terminal repeats until none remains, and counts all that were re-encrypted", async () => {
  const { inputs, output } = await runOn(
    [
      { resealed: 100, remaining: 120, unreadable: 0 },
      { resealed: 100, remaining: 20, unreadable: 1 },
      { resealed: 20, remaining: 0, unreadable: 1 },
    ],
    "resealSecrets",
  );
  expect(inputs).toHaveLength(3);
  expect(output).toEqual({ resealed: 220, remaining: 0, unreadable: 1 });
});

test("resealSecrets in a terminal ends with a call that re-encrypts none", async () => {
  const last = { resealed: 0, remaining: 2, unreadable: 3 };
  const { output } = await runOn(
    [{ resealed: 1, remaining: 2, unreadable: 3 }, last],
    "resealSecrets",
  );
  expect(output).toEqual({ ...last, resealed: 1 });
});
