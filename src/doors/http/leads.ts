import { LEADS_LIST } from "../../contract/cursor.ts";
import { listLeads } from "../../model/leads.ts";
import { createApp } from "./context.ts";
import { parsePageRequest, toPage } from "./paging.ts";
import { served } from "./served.ts";

export const leads = createApp();

leads.get("/leads", served("leads"), async (c) => {
  const request = parsePageRequest(c, LEADS_LIST);
  const keys = c.env.WEBHOOK_ENCRYPTION_KEYS;
  const found = await listLeads(c.get("db"), keys, c.get("workspaceId"), request);
  return c.json(toPage(LEADS_LIST, found), 200);
});
