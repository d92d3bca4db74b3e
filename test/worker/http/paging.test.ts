import { exports } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { toBase64Url } from "../../../src/contract/bytes.ts";
import type { Page as PageOf } from "../../../src/http/paging.ts";
import { type Answer, invalid, leadReport, openWorkspace } from "../../support/api.ts";

type Page = PageOf<{ id: string; created_at: string }>;

type Workspace = Awaited<ReturnType<typeof openWorkspace>>;

/** Records leads with these times; returns their ids. */
async function recordLeads(workspaceId: string, instants: string[]): Promise<string[]> {
  const leads = instants.map((createdAt) => leadReport(crypto.randomUUID(), { createdAt }));
  const { ids } = await exports.Platform.recordLeads({ workspaceId, leads });
  return ids;
}

/** Reads a list to the end; `between` is called after each page. */
async function walk({ api }: Workspace, path: string, between = async () => {}): Promise<Page[]> {
  const pages: Page[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const answer: Answer<Page> = await api.get(`${path}&cursor=${cursor}`);
    expect(answer.status).toBe(200);
    pages.push(answer.body);
    cursor = answer.body.next_cursor;
    await between();
  }
  return pages;
}

function idsOf(pages: Page[]): string[] {
  return pages.flatMap(({ data }) => data.map(({ id }) => id));
}

const forged = (text: string) => toBase64Url(new TextEncoder().encode(text));

const LISTS = ["/v1/automations", "/v1/leads", "/v1/runs", "/v1/webhooks"];

describe("the limit of a page", () => {
  let workspace: Workspace;
  beforeAll(async () => {
    workspace = await openWorkspace({ requestsPerWindow: 10_000 });
    const instants = Array.from({ length: 100 }, (_, i) => new Date(i * 1000).toISOString());
    await recordLeads(workspace.workspaceId, instants);
    await recordLeads(workspace.workspaceId, ["2020-01-01T00:00:00Z"]);
  });

  test.each([
    ["", 25],
    ["?limit=1", 1],
    ["?limit=25", 25],
    ["?limit=99", 99],
    ["?limit=100", 100],
  ])("of /v1/leads%s is %d", async (query, length) => {
    const { body } = await workspace.api.get<Page>(`/v1/leads${query}`);
    expect(body.data).toHaveLength(length);
    expect(body.has_more).toBe(true);
    expect(body.next_cursor).toMatch(/^[A-Za-z0-9_-]+$/);
  });

  const bounds = { min: 1, max: 100 };
  const outOfRange = invalid("limit", "out_of_range", bounds);
  const noInteger = invalid("limit", "invalid_type", bounds);

  test.each(["0", "-1", "101", "00", "9007199254740993", "9".repeat(400)])(
    "is rejected, not corrected, if it is out of range: limit=%s",
    async (limit) => {
      expect(await workspace.api.get(`/v1/leads?limit=${limit}`)).toEqual(outOfRange);
    },
  );

  test.each(["", "1.0", "1e1", "%2B5", "5%20", "0x10", "1_0", "%EF%BC%95", "null", "5,6"])(
    "is rejected if it is not decimal digits: limit=%s",
    async (limit) => {
      expect(await workspace.api.get(`/v1/leads?limit=${limit}`)).toEqual(noInteger);
    },
  );

  test("is rejected if it has no value or is repeated, even with the same value", async () => {
    expect(await workspace.api.get("/v1/leads?limit")).toEqual(noInteger);
    const repeated = invalid("limit", "invalid_type");
    expect(await workspace.api.get("/v1/leads?limit=5&limit=5")).toEqual(repeated);
    expect(await workspace.api.get("/v1/leads?limit=5&li%6Dit=6")).toEqual(repeated);
  });

  test.each(LISTS)("is checked by every list, and so is the cursor: %s", async (path) => {
    expect(await workspace.api.get(`${path}?limit=0`)).toEqual(outOfRange);
    expect(await workspace.api.get(`${path}?limit=1.0`)).toEqual(noInteger);
    const foreign = `${path}?cursor=${forged(`[1,"${path === "/v1/leads" ? "runs" : "leads"}",1,"lea_1"]`)}`;
    expect(await workspace.api.get(foreign)).toEqual(invalid("cursor", "unreadable"));
  });
});

describe("the cursor of a page", () => {
  const unreadable = invalid("cursor", "unreadable");
  let workspace: Workspace;
  let first: Page;
  beforeAll(async () => {
    workspace = await openWorkspace({ requestsPerWindow: 10_000 });
    await recordLeads(workspace.workspaceId, ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]);
    first = (await workspace.api.get<Page>("/v1/leads?limit=1")).body;
  });

  test.each(["", "&cursor", "&cursor=", "&cursor=null"])(
    "absent, empty or the word null means the first page: %j",
    async (query) => {
      const { status, body } = await workspace.api.get(`/v1/leads?limit=1${query}`);
      expect({ status, body }).toEqual({ status: 200, body: first });
    },
  );

  test.each([
    ["garbage", "garbage"],
    ["NULL in capitals", "NULL"],
    ["bytes that are not UTF-8", "%ff"],
    ["another list", forged('[1,"runs",1,"run_1"]')],
  ])("is rejected with a 400 that names it: %s", async (_, cursor) => {
    expect(await workspace.api.get(`/v1/leads?cursor=${cursor}`)).toEqual(unreadable);
  });

  test("is rejected if it was tampered with", async () => {
    const cursor = first.next_cursor as string;
    for (const tampered of [cursor.slice(1), cursor.slice(0, -2), `${cursor}AAAA`, `${cursor}=`])
      expect(await workspace.api.get(`/v1/leads?cursor=${tampered}`), tampered).toEqual(unreadable);
  });

  test("never causes an error, whatever id or time was forged", async () => {
    for (const position of [
      '1,"\\u0000"',
      '1,"\\ud800"',
      '9007199254740991,""',
      '-9007199254740991,"~"',
    ]) {
      const answer = await workspace.api.get(
        `/v1/leads?cursor=${forged(`[1,"leads",${position}]`)}`,
      );
      expect([200, 400], position).toContain(answer.status);
    }
  });
});

describe("a list read page by page", () => {
  test("is complete, newest first", async () => {
    const workspace = await openWorkspace();
    const instants = Array.from({ length: 23 }, (_, i) =>
      new Date(Date.UTC(2026, 0, 1) + ((i * 7) % 23) * 1000).toISOString(),
    );
    const ids = await recordLeads(workspace.workspaceId, instants);
    const pages = await walk(workspace, "/v1/leads?limit=5");
    expect(pages.map(({ data }) => data.length)).toEqual([5, 5, 5, 5, 3]);
    expect(pages.map(({ has_more }) => has_more)).toEqual([true, true, true, true, false]);
    const newestFirst = ids
      .map((id, i) => ({ id, at: instants[i] as string }))
      .sort((a, b) => b.at.localeCompare(a.at));
    expect(idsOf(pages)).toEqual(newestFirst.map(({ id }) => id));
  });

  test("with equal times is complete, in the order of the ids, and ends with a full page", async () => {
    const workspace = await openWorkspace();
    const ids = await recordLeads(workspace.workspaceId, Array(12).fill("2026-01-01T00:00:00Z"));
    const pages = await walk(workspace, "/v1/leads?limit=3");
    expect(idsOf(pages)).toEqual(ids.toSorted().reverse());
    expect(pages.map(({ has_more }) => has_more)).toEqual([true, true, true, false]);
  });

  test("skips and repeats nothing while rows are added: newer, older and in between", async () => {
    const workspace = await openWorkspace();
    const instants = Array.from(
      { length: 20 },
      (_, i) => `2026-01-${10 + Math.floor(i / 2)}T00:00:00Z`,
    );
    const ids = await recordLeads(workspace.workspaceId, instants);
    const added: string[] = [];
    const pages = await walk(workspace, "/v1/leads?limit=3", async () => {
      if (added.length < 12)
        added.push(
          ...(await recordLeads(workspace.workspaceId, [
            "2026-02-01T00:00:00Z",
            "2026-01-12T00:00:00Z",
            "2026-01-01T00:00:00Z",
          ])),
        );
    });
    const seen = idsOf(pages);
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen.filter((id) => ids.includes(id)).toSorted()).toEqual(ids.toSorted());
    const times = pages.flatMap(({ data }) => data.map(({ created_at }) => created_at));
    expect(times).toEqual(times.toSorted().reverse());
  });
});
