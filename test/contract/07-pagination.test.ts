import { beforeAll, describe, expect, test } from "vitest";
import { type Api, openWorkspace, type Page, subscribe } from "./support.ts";

/** Makes three items. @returns their ids. */
async function three(make: () => Promise<string>): Promise<string[]> {
  return [await make(), await make(), await make()];
}

/** The lists of the contract, each of a workspace with three items. */
const LISTS: {
  list: string;
  open: () => Promise<{ api: Api; path: string; ids: string[] }>;
}[] = [
  {
    list: "GET /automations",
    open: async () => {
      const { api, recordAutomation } = await openWorkspace();
      return { api, path: "/automations", ids: await three(() => recordAutomation()) };
    },
  },
  {
    list: "GET /automations/{id}/runs",
    open: async () => {
      const { api, recordAutomation, recordRun } = await openWorkspace();
      const automationId = await recordAutomation();
      const ids = await three(() => recordRun(automationId));
      return { api, path: `/automations/${automationId}/runs`, ids };
    },
  },
  {
    list: "GET /runs",
    open: async () => {
      const { api, recordAutomation, recordRun } = await openWorkspace();
      const ids = await three(async () => recordRun(await recordAutomation()));
      return { api, path: "/runs", ids };
    },
  },
  {
    list: "GET /leads",
    open: async () => {
      const { api, recordLead } = await openWorkspace();
      return { api, path: "/leads", ids: await three(() => recordLead()) };
    },
  },
  {
    list: "GET /webhooks",
    open: async () => {
      const { api } = await openWorkspace();
      const ids = await three(async () => (await subscribe(api, "https://hooks.example.com/")).id);
      return { api, path: "/webhooks", ids };
    },
  },
];

describe.each(LISTS)("Pagination envelope of `$list`", ({ open }) => {
  let api: Api;
  let path: string;
  let ids: string[];
  beforeAll(async () => {
    ({ api, path, ids } = await open());
  });

  test("The envelope has `data`, `has_more` and `next_cursor`, and no other field", async () => {
    const [data, next_cursor] = [expect.any(Array), expect.any(String)];
    expect((await api.get(`${path}?limit=2`)).body).toEqual({ data, has_more: true, next_cursor });
  });

  test("`data` are the items", async () => {
    const { data } = (await api.get<Page>(path)).body;
    expect(data.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
  });

  test("`data` has no more items than `limit`", async () => {
    expect((await api.get<Page>(`${path}?limit=2`)).body.data).toHaveLength(2);
  });

  test.each(["", "null"])("A `cursor` that is %j means the first page", async (cursor) => {
    const first = await api.get<Page>(`${path}?limit=2`);
    const { body } = await api.get<Page>(`${path}?limit=2&cursor=${cursor}`);
    expect(body.data).toEqual(first.body.data);
  });

  test("`has_more` is true when a further page exists", async () => {
    expect((await api.get<Page>(`${path}?limit=2`)).body.has_more).toBe(true);
  });

  test("`has_more` is false when no further page exists", async () => {
    expect((await api.get<Page>(`${path}?limit=3`)).body.has_more).toBe(false);
  });

  test("`next_cursor` leads to the next page, without gap or repetition", async () => {
    const { data: all } = (await api.get<Page>(path)).body;
    const paged = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const query = new URLSearchParams({ limit: "1", cursor });
      const { body }: { body: Page } = await api.get<Page>(`${path}?${query}`);
      paged.push(...body.data);
      cursor = body.next_cursor;
    }
    expect(paged).toEqual(all);
  });

  test("`next_cursor` is null when there is no next page", async () => {
    expect((await api.get<Page>(path)).body.next_cursor).toBeNull();
  });
});
