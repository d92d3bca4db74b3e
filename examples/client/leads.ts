/** Prints every lead of the workspace, newest first, one JSON line each. */
import { setTimeout } from "node:timers/promises";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Lead = components["schemas"]["Lead"];

const { API_URL = "http://localhost:8787", API_KEY } = process.env;
if (!API_KEY) throw new Error("set API_KEY");

const api = createClient<paths>({
  baseUrl: API_URL,
  headers: { Authorization: `Bearer ${API_KEY}` },
  fetch: fetchWithinQuota,
});

for await (const lead of readLeads()) console.log(JSON.stringify(lead));

/** Follows the cursor from page to page; an empty one is the first. */
async function* readLeads(): AsyncGenerator<Lead> {
  let cursor = "";
  do {
    const query = { limit: 100, cursor };
    const { data: page, error } = await api.GET("/v1/leads", { params: { query } });
    if (error) throw new Error(`${error.error.code}: ${error.error.message}`);
    yield* page.data;
    cursor = page.next_cursor ?? "";
  } while (cursor);
}

/** Waits as long as a 429 asks, and asks again: what was refused so has had no effect. */
async function fetchWithinQuota(request: Request): Promise<Response> {
  for (;;) {
    const response = await fetch(request.clone());
    if (response.status !== 429) return response;
    await response.body?.cancel();
    await setTimeout(Number(response.headers.get("Retry-After")) * 1_000);
  }
}
