import { describe, expect, test } from "vitest";
import type { PageBody } from "../../../src/http/paging.ts";
import { toBase64Url } from "../../../src/primitives/bytes.ts";
import { type Answer, invalid, leadReport, openWorkspace, Platform } from "../../support/api.ts";

type Page = PageBody<{ id: string; created_at: string }>;
type Workspace = Awaited<ReturnType<typeof openWorkspace>>;

/** Records leads with these times, Unix milliseconds; returns their ids. */
async function recordLeads({ workspaceId }: Workspace, times: number[]): Promise<string[]> {
  const leads = times.map((time) =>
    leadReport(crypto.randomUUID(), { createdAt: new Date(time).toISOString() }),
  );
  return (await Platform.recordLeads({ workspaceId, leads })).ids;
}

/** Reads the leads to the end; `between` is called after each page. Returns them, and the pages' lengths. */
async function walk({ api }: Workspace, limit: number, between = async () => {}) {
  const leads: Page["data"] = [];
  const lengths: number[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const { status, body }: Answer<Page> = await api.get(
      `/v1/leads?limit=${limit}&cursor=${cursor}`,
    );
    expect([status, body.has_more]).toEqual([200, body.next_cursor !== null]);
    lengths.push(body.data.length);
    leads.push(...body.data);
    cursor = body.next_cursor;
    await between();
  }
  return { leads, ids: leads.map(({ id }) => id), lengths };
}

const unreadable = invalid("cursor", "unreadable");
const forged = (text: string) => toBase64Url(new TextEncoder().encode(text));

const workspace = await openWorkspace();
const seconds = Array.from({ length: 100 }, (_, i) => i * 1000);
for (const times of [[0], seconds]) await recordLeads(workspace, times);
const { body: first } = await workspace.api.get<Page>("/v1/leads?limit=1");

// Every list checks both: test/worker/http/document/error-examples.test.ts.
describe("the limit of a page", () => {
  test.each([
    ["", 25],
    ["?limit=1", 1],
    ["?limit=99", 99],
    ["?limit=100", 100],
  ])("of /v1/leads%s is %d", async (query, length) => {
    const { body } = await workspace.api.get<Page>(`/v1/leads${query}`);
    const next_cursor = expect.stringMatching(/^[A-Za-z0-9_-]+$/);
    expect(body).toEqual({ data: expect.any(Array), has_more: true, next_cursor });
    expect(body.data).toHaveLength(length);
  });

  const bounds = { min: 1, max: 100 };
  const outOfRange = invalid("limit", "out_of_range", bounds);
  const noInteger = invalid("limit", "invalid_type", bounds);
  const repeated = invalid("limit", "invalid_type");
  const outside = ["0", "-1", "101", "00", "9007199254740993", "9".repeat(400)];
  const odd = ["", "1.0", "1e1", "%2B5", "5%20", "0x10", "1_0", "%EF%BC%95", "null", "5,6"];

  test.each<[string, Answer]>([
    ...outside.map((limit): [string, Answer] => [`limit=${limit}`, outOfRange]),
    ...odd.map((limit): [string, Answer] => [`limit=${limit}`, noInteger]),
    ["limit", noInteger],
    ["limit=5&limit=5", repeated],
    ["limit=5&li%6Dit=6", repeated],
  ])("is rejected, not corrected, if it is no integer from 1 to 100: %s", async (query, answer) => {
    expect(await workspace.api.get(`/v1/leads?${query}`)).toEqual(answer);
  });
});

describe("the cursor of a page", () => {
  test("is rejected with a 400 that names it if it is none, or was tampered with", async () => {
    const cursor = first.next_cursor as string;
    const ends = [`${cursor}AAAA`, `${cursor}=`, `${cursor}%20`];
    const tampered = [cursor.slice(1), cursor.slice(0, -2), ...ends];
    for (const text of ["garbage", "NULL", "%ff", ...tampered])
      expect(await workspace.api.get(`/v1/leads?cursor=${text}`), text).toEqual(unreadable);
  });

  test.each(['1,"\\u0000"', '1,"\\ud800"', '9007199254740991,""', '-9007199254740991,"~"'])(
    "never causes an error, whatever id or time was forged: %s",
    async (position) => {
      const cursor = forged(`[1,"leads",${position}]`);
      expect([200, 400]).toContain((await workspace.api.get(`/v1/leads?cursor=${cursor}`)).status);
    },
  );
});

describe("a list read page by page", () => {
  test.each([
    ["newest first", Array.from({ length: 23 }, (_, i) => ((i * 7) % 23) * 1000), [5, 5, 5, 5, 3]],
    ["equal times in the order of the ids, up to a full page", Array(12).fill(0), [3, 3, 3, 3]],
  ])("is complete: %s", async (_, times, expected) => {
    const workspace = await openWorkspace();
    const recorded = await recordLeads(workspace, times);
    const { ids, lengths } = await walk(workspace, expected[0] as number);
    const timeOf = (id: string) => times[recorded.indexOf(id)];
    const sorted = recorded.toSorted().toReversed();
    expect(ids).toEqual(sorted.toSorted((a, b) => timeOf(b) - timeOf(a)));
    expect(lengths).toEqual(expected);
  });

  test("skips and repeats nothing while rows are added", async () => {
    const workspace = await openWorkspace();
    const times = Array.from({ length: 20 }, (_, i) => 10_000 + 1_000 * Math.floor(i / 2));
    const recorded = await recordLeads(workspace, times);
    let rounds = 0;
    const { leads, ids } = await walk(workspace, 3, async () => {
      if (rounds++ < 4) await recordLeads(workspace, [99_000, 12_000, 1_000]);
    });
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.filter((id) => recorded.includes(id)).toSorted()).toEqual(recorded.toSorted());
    const shown = leads.map(({ created_at }) => created_at);
    expect(shown).toEqual(shown.toSorted().reverse());
  });
});
