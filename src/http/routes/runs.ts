import { createRoute } from "@hono/zod-openapi";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { listRuns, listRunsOfAutomation, Run } from "../../records/runs.ts";
import { newApp, served } from "../context.ts";
import { listOrder, PageQuery, pageSchema, toPageBody, toPageRequest } from "../paging.ts";
import { errors, json } from "../responses.ts";
import { AutomationParams } from "./automations.ts";
import { PAGES } from "./examples.ts";

export const runRoutes = newApp();

const RunPage = pageSchema(Run, "RunPage", "runs");

runRoutes.openapi(
  createRoute({
    method: "get",
    path: "/runs",
    operationId: "listRuns",
    tags: ["Runs"],
    summary: "List the runs of the workspace",
    description: listOrder("`occurred_at`"),
    middleware: served("runs"),
    request: { query: PageQuery },
    responses: {
      200: json(RunPage, "A page of runs, newest first.", PAGES.runs),
      ...errors("InvalidQuery"),
    },
  }),
  async (c) => {
    const request = toPageRequest("runs", c.req.valid("query"));
    const found = await c.get("readAdmitted")((db) => listRuns(db, c.get("workspaceId"), request));
    return c.json(toPageBody("runs", found), 200);
  },
);

runRoutes.openapi(
  createRoute({
    method: "get",
    path: "/automations/{id}/runs",
    operationId: "listRunsOfAutomation",
    tags: ["Runs"],
    summary: "List the runs of one automation",
    description: listOrder("`occurred_at`"),
    middleware: served("runs"),
    request: { params: AutomationParams, query: PageQuery },
    responses: {
      200: json(RunPage, "A page of its runs, newest first.", PAGES.runs),
      ...errors("InvalidQuery", "AutomationNotFound"),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    const list = `automations/${id}/runs` as const;
    const request = toPageRequest(list, c.req.valid("query"));
    if (!isId("automation", id)) throw new ApiError("automation_not_found");
    const workspaceId = c.get("workspaceId");
    const found = await c.get("readAdmitted")((db) =>
      listRunsOfAutomation(db, workspaceId, id, request),
    );
    if (!found) throw new ApiError("automation_not_found");
    return c.json(toPageBody(list, found), 200);
  },
);
