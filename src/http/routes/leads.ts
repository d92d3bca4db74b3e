import { createRoute } from "@hono/zod-openapi";
import { Lead, listLeads } from "../../records/leads.ts";
import { newApp, served } from "../context.ts";
import { listOrder, PageQuery, pageSchema, toPageBody, toPageRequest } from "../paging.ts";
import { errors, json } from "../responses.ts";
import { PAGES } from "./examples.ts";

export const leadRoutes = newApp();

const LeadPage = pageSchema(Lead, "LeadPage", "leads");

leadRoutes.openapi(
  createRoute({
    method: "get",
    path: "/leads",
    operationId: "listLeads",
    tags: ["Leads"],
    summary: "List the leads of the workspace",
    description: `${listOrder("`created_at`")} Rather than poll, subscribe to \`lead.created\`.`,
    middleware: served("leads"),
    request: { query: PageQuery },
    responses: {
      200: json(LeadPage, "A page of leads, newest first.", PAGES.leads),
      ...errors("InvalidQuery"),
    },
  }),
  async (c) => {
    const request = toPageRequest("leads", c.req.valid("query"));
    const keys = c.env.ENCRYPTION_KEYS;
    const found = await c.get("readAdmitted")((db) =>
      listLeads(db, keys, c.get("workspaceId"), request),
    );
    return c.json(toPageBody("leads", found), 200);
  },
);
