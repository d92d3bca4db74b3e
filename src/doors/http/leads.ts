import { Hono } from "hono";
import { LEADS_LIST, listLeads } from "../../model/leads.ts";
import type { AppEnv } from "./context.ts";
import { readPageRequest } from "./paging.ts";
import { served } from "./served.ts";

export const leads = new Hono<AppEnv>();

leads.get("/leads", served("leads"), async (c) => {
  const request = readPageRequest(c, LEADS_LIST);
  return c.json(await listLeads(c.get("db"), c.get("workspaceId"), request), 200);
});
