import { createRoute, OpenAPIHono } from "@hono/zod-openapi";
import { Lead } from "../contract/resources.ts";
import { LEADS_LIST, listLeads } from "../model/leads.ts";
import type { AppEnv } from "./context.ts";
import { refuseInvalid } from "./envelope.ts";
import { PageQuery, pageOf, readPageRequest } from "./paging.ts";
import { errors, json } from "./responses.ts";
import { served } from "./served.ts";

export const leads = new OpenAPIHono<AppEnv>({ defaultHook: refuseInvalid });

leads.openapi(
  createRoute({
    method: "get",
    path: "/leads",
    operationId: "listLeads",
    tags: ["Leads"],
    summary: "List the leads of the workspace",
    middleware: [served("leads")],
    request: { query: PageQuery },
    responses: {
      200: json("A page of leads, newest first.", pageOf(Lead, "LeadPage")),
      ...errors(["invalid_request"]),
    },
  }),
  async (c) => {
    const request = readPageRequest(LEADS_LIST, c.req.valid("query"));
    return c.json(await listLeads(c.get("db"), c.get("workspaceId"), request), 200);
  },
);
