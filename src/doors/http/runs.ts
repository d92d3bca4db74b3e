import { Hono } from "hono";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { visibilityOf } from "../../model/automations.ts";
import { listRuns, listRunsOfAutomation, RUNS_LIST, runsListOf } from "../../model/runs.ts";
import type { AppEnv } from "./context.ts";
import { readPageRequest } from "./paging.ts";
import { served } from "./served.ts";

export const runs = new Hono<AppEnv>();

runs.get("/runs", served("runs"), async (c) => {
  const workspaceId = c.get("workspaceId");
  const db = c.get("db");
  const request = readPageRequest(c, RUNS_LIST);
  return c.json(await listRuns(db, workspaceId, visibilityOf(c.env.SERVED_ROUTES), request), 200);
});

runs.get("/automations/:id/runs", served("runs"), async (c) => {
  const id = c.req.param("id");
  const workspaceId = c.get("workspaceId");
  const db = c.get("db");
  const request = readPageRequest(c, runsListOf(id));
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
});
