import { RUNS_LIST, runsListOf } from "../../contract/cursor.ts";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { visibilityOf } from "../../model/automations.ts";
import { listRuns, listRunsOfAutomation } from "../../model/runs.ts";
import { createApp } from "./context.ts";
import { parsePageRequest, toPage } from "./paging.ts";
import { served } from "./served.ts";

export const runs = createApp();

runs.get("/runs", served("runs"), async (c) => {
  const workspaceId = c.get("workspaceId");
  const db = c.get("db");
  const request = parsePageRequest(c, RUNS_LIST);
  const found = await listRuns(db, workspaceId, visibilityOf(c.env.SERVED_ROUTES), request);
  return c.json(toPage(RUNS_LIST, found), 200);
});

runs.get("/automations/:id/runs", served("runs"), async (c) => {
  const id = c.req.param("id");
  const workspaceId = c.get("workspaceId");
  const db = c.get("db");
  const list = runsListOf(id);
  const request = parsePageRequest(c, list);
  if (!isId("automation", id)) throw new ApiError("automation_not_found");
  const found = await listRunsOfAutomation(
    db,
    workspaceId,
    visibilityOf(c.env.SERVED_ROUTES),
    id,
    request,
  );
  if (!found) throw new ApiError("automation_not_found");
  return c.json(toPage(list, found), 200);
});
