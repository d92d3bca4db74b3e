import { createRoute, OpenAPIHono } from "@hono/zod-openapi";
import { ApiError } from "../contract/errors.ts";
import { isId } from "../contract/ids.ts";
import { Run } from "../contract/resources.ts";
import { visibilityOf } from "../model/automations.ts";
import { listRuns, listRunsOfAutomation, RUNS_LIST, runsListOf } from "../model/runs.ts";
import { AutomationPath } from "./automations.ts";
import type { AppEnv } from "./context.ts";
import { refuseInvalid } from "./envelope.ts";
import { PageQuery, pageOf, readPageRequest } from "./paging.ts";
import { errors, json } from "./responses.ts";
import { served } from "./served.ts";

export const runs = new OpenAPIHono<AppEnv>({ defaultHook: refuseInvalid });

const RunPage = pageOf(Run, "RunPage");

runs.openapi(
  createRoute({
    method: "get",
    path: "/runs",
    operationId: "listRuns",
    tags: ["Runs"],
    summary: "List the runs of the workspace",
    middleware: [served("runs")],
    request: { query: PageQuery },
    responses: {
      200: json("A page of runs, newest first.", RunPage),
      ...errors(["invalid_request"]),
    },
  }),
  async (c) => {
    const workspaceId = c.get("workspaceId");
    const db = c.get("db");
    const request = readPageRequest(RUNS_LIST, c.req.valid("query"));
    return c.json(await listRuns(db, workspaceId, visibilityOf(c.env.SERVED_ROUTES), request), 200);
  },
);

runs.openapi(
  createRoute({
    method: "get",
    path: "/automations/{id}/runs",
    operationId: "listRunsOfAutomation",
    tags: ["Runs"],
    summary: "List the runs of one automation",
    middleware: [served("runs")],
    request: { params: AutomationPath, query: PageQuery },
    responses: {
      200: json("A page of its runs, newest first.", RunPage),
      ...errors(["invalid_request", "automation_not_found"]),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    const workspaceId = c.get("workspaceId");
    const db = c.get("db");
    const request = readPageRequest(runsListOf(id), c.req.valid("query"));
    if (!isId("automation", id)) throw new ApiError("automation_not_found");
    const page = await listRunsOfAutomation(
      db,
      workspaceId,
      visibilityOf(c.env.SERVED_ROUTES),
      id,
      request,
    );
    if (!page) throw new ApiError("automation_not_found");
    return c.json(page, 200);
  },
);
