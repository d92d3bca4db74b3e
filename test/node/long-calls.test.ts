import { expect, test, vi } from "vitest";
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

/** Runs `npm run platform` with `--ndjson`, and collects what it prints. */
async function printedOf(outputs: object[], ...args: string[]) {
  let printed = "";
  const failures: string[] = [];
  const write = vi
    .spyOn(process.stdout, "write")
    .mockImplementation((text, ...others: unknown[]) => {
      printed += text;
      for (const done of others) if (typeof done === "function") done();
      return true;
    });
  const { inputs = [] } = await runOn(outputs, ...args, "--ndjson")
    .catch((error: Error) => {
      failures.push(error.message);
      return { inputs: [] };
    })
    .finally(() => write.mockRestore());
  return { printed, failures, inputs };
}

test("a list in a terminal skips empty pages, and stops at the first one with items", async () => {
  const pages = [
    { items: [], nextCursor: "a" },
    { items: [], nextCursor: "b" },
    { items: [{ eventId: "evt_1" }], nextCursor: "c" },
  ];
  const { inputs, output } = await runOn(pages, "listDeliveries", '{ "webhookId": "whk_1" }');
  const input = { actor: "Ada", webhookId: "whk_1" };
  expect(inputs).toEqual([input, { ...input, cursor: "a" }, { ...input, cursor: "b" }]);
  expect(output).toEqual(pages[2]);
});

test("a list in a terminal that fails behind empty pages says where to continue", async () => {
  const pages = [
    { items: [], nextCursor: "a" },
    { items: [], nextCursor: "b" },
  ];
  await expect(runOn(pages, "listDeliveries", '{ "webhookId": "whk_1" }')).rejects.toThrow(
    `Continue with '{"webhookId":"whk_1","cursor":"b"}'`,
  );
});

test("a list in a terminal is empty if its last page is empty", async () => {
  const pages = [
    { items: [], nextCursor: "a" },
    { items: [], nextCursor: null },
  ];
  const { inputs, output } = await runOn(pages, "listDeliveries", '{ "webhookId": "whk_1" }');
  expect(inputs).toHaveLength(2);
  expect(output).toEqual({ items: [], nextCursor: null });
});

test.each([
  ["listApiKeys", { workspaceId: "wks_1" }, {}],
  ["findLeads", { workspaceId: "wks_1", email: "a@example.com" }, { unreadable: ["lea_1"] }],
])("%s in a terminal reads all pages, and shows them as one", async (method, given, others) => {
  const pages = [
    { items: ["a", "b"], ...others, nextCursor: "2" },
    { items: [], ...others, nextCursor: "3" },
    { items: ["c"], ...others, nextCursor: null },
  ];
  const { inputs, output } = await runOn(pages, method, JSON.stringify(given));
  expect(inputs).toEqual([null, "2", "3"].map((cursor) => ({ actor: "Ada", ...given, cursor })));
  const unreadable = Array(3).fill("lea_1");
  expect(output).toEqual({
    items: ["a", "b", "c"],
    ...("unreadable" in others && { unreadable }),
    nextCursor: null,
  });
});

test("listWorkspaces in a terminal reads one page, because there may be any number", async () => {
  const page = { items: [{ workspaceId: "wks_1" }], nextCursor: "2" };
  const { inputs, output } = await runOn([page], "listWorkspaces");
  expect(inputs).toEqual([{ actor: "Ada" }]);
  expect(output).toEqual(page);
});

test("listWorkspaces --ndjson that fails says where to continue", async () => {
  const { printed, failures } = await printedOf(
    [{ items: [{ workspaceId: "wks_1" }], nextCursor: "2" }],
    "listWorkspaces",
    '{ "name": "x" }',
  );
  expect(printed).toBe('{"workspaceId":"wks_1"}\n');
  expect(failures).toEqual([expect.stringContaining(`continue with '{"name":"x","cursor":"2"}'`)]);
});

test.each(["listAuditTrail", "listWorkspaces"])(
  "%s --ndjson prints all pages, one item per line",
  async (method) => {
    const pages = [
      { items: [{ name: "a" }, { name: "b" }], nextCursor: "2" },
      { items: [{ name: "c" }], nextCursor: null },
    ];
    const { printed, failures, inputs } = await printedOf(pages, method);
    expect(failures).toEqual([]);
    expect(inputs).toEqual([null, "2"].map((cursor) => ({ actor: "Ada", cursor })));
    expect(printed).toBe('{"name":"a"}\n{"name":"b"}\n{"name":"c"}\n');
  },
);

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
