import { AUTOMATIONS_LIST } from "../../contract/cursor.ts";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { wake } from "../../delivery/wake.ts";
import {
  findAutomation,
  listAutomations,
  toAutomation,
  visibilityOf,
} from "../../model/automations.ts";
import { controlAutomation } from "../../model/control.ts";
import { readBody } from "./body.ts";
import { createApp } from "./context.ts";
import { parsePageRequest, toPage } from "./paging.ts";
import { served } from "./served.ts";

export const automations = createApp();

automations.get("/automations", served("automations"), async (c) => {
  const workspaceId = c.get("workspaceId");
  const db = c.get("db");
  const request = parsePageRequest(c, AUTOMATIONS_LIST);
  const found = await listAutomations(db, workspaceId, visibilityOf(c.env.SERVED_ROUTES), request);
  return c.json(toPage(AUTOMATIONS_LIST, found), 200);
});

automations.get("/automations/:id", served("automations"), async (c) => {
  const id = c.req.param("id");
  if (!isId("automation", id)) throw new ApiError("automation_not_found");
  const row = await findAutomation(
    c.get("db"),
    c.get("workspaceId"),
    visibilityOf(c.env.SERVED_ROUTES),
    id,
  );
  if (!row) throw new ApiError("automation_not_found");
  return c.json(toAutomation(row), 200);
});

automations.patch("/automations/:id", served("automations.patch"), async (c) => {
  const id = c.req.param("id");
  const { status } = await readBody(c, "AutomationControl");
  if (!isId("automation", id)) throw new ApiError("automation_not_found");
  const db = c.get("db");
  const workspaceId = c.get("workspaceId");
  const visibility = visibilityOf(c.env.SERVED_ROUTES);
  const control = await controlAutomation(db, workspaceId, visibility, id, status, Date.now);
  if (control.result === "not_found") throw new ApiError("automation_not_found");
  if (control.result === "not_controllable") throw new ApiError("automation_not_controllable");
  c.executionCtx.waitUntil(wake(c.env, c.get("home").database, control.wakes));
  return c.json(toAutomation(control.row), 200);
});
