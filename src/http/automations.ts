import { createRoute, OpenAPIHono, z } from "@hono/zod-openapi";
import { ApiError } from "../contract/errors.ts";
import { isId } from "../contract/ids.ts";
import { Automation } from "../contract/resources.ts";
import { wake } from "../delivery/wake.ts";
import {
  AUTOMATIONS_LIST,
  findAutomation,
  listAutomations,
  toAutomation,
  visibilityOf,
} from "../model/automations.ts";
import { CONTROLLABLE, controlAutomation } from "../model/control.ts";
import { jsonBody } from "./body.ts";
import type { AppEnv } from "./context.ts";
import { refuseInvalid } from "./envelope.ts";
import { PageQuery, pageOf, readPageRequest } from "./paging.ts";
import { errors, json } from "./responses.ts";
import { served } from "./served.ts";

export const automations = new OpenAPIHono<AppEnv>({ defaultHook: refuseInvalid });

/** The `id` in a path that names an automation. */
export const AutomationPath = z.object({
  id: z.string().openapi({
    param: { name: "id", in: "path" },
    description: "Opaque, starts with `aut_`.",
    example: "aut_0q2m5x8c1v7b4n9k3j6h0g2f5",
  }),
});

automations.openapi(
  createRoute({
    method: "get",
    path: "/automations",
    operationId: "listAutomations",
    tags: ["Automations"],
    summary: "List the automations of the workspace",
    middleware: [served("automations")],
    request: { query: PageQuery },
    responses: {
      200: json("A page of automations, newest first.", pageOf(Automation, "AutomationPage")),
      ...errors(["invalid_request"]),
    },
  }),
  async (c) => {
    const workspaceId = c.get("workspaceId");
    const db = c.get("db");
    const request = readPageRequest(AUTOMATIONS_LIST, c.req.valid("query"));
    return c.json(
      await listAutomations(db, workspaceId, visibilityOf(c.env.SERVED_ROUTES), request),
      200,
    );
  },
);

automations.openapi(
  createRoute({
    method: "get",
    path: "/automations/{id}",
    operationId: "getAutomation",
    tags: ["Automations"],
    summary: "Read one automation",
    middleware: [served("automations")],
    request: { params: AutomationPath },
    responses: {
      200: json("The automation.", Automation),
      ...errors(["automation_not_found"]),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    if (!isId("automation", id)) throw new ApiError("automation_not_found");
    const row = await findAutomation(
      c.get("db"),
      c.get("workspaceId"),
      visibilityOf(c.env.SERVED_ROUTES),
      id,
    );
    if (!row) throw new ApiError("automation_not_found");
    return c.json(toAutomation(row), 200);
  },
);

automations.openapi(
  createRoute({
    method: "patch",
    path: "/automations/{id}",
    operationId: "controlAutomation",
    tags: ["Automations"],
    summary: "Pause or activate an automation",
    description:
      "An automation that is there already stays as it is: 200, and no event. A change is announced to subscribers of `automation.status_changed`.",
    middleware: [served("automations.patch"), jsonBody],
    request: {
      params: AutomationPath,
      body: {
        required: true,
        content: {
          "application/json": {
            schema: z
              .strictObject({ status: z.enum(CONTROLLABLE).openapi({ example: "paused" }) })
              .openapi("AutomationControl"),
          },
        },
      },
    },
    responses: {
      200: json("The automation as it is now.", Automation),
      ...errors(["invalid_request", "automation_not_found", "automation_not_controllable"], true),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    if (!isId("automation", id)) throw new ApiError("automation_not_found");
    const db = c.get("db");
    const workspaceId = c.get("workspaceId");
    const { status } = c.req.valid("json");
    const visibility = visibilityOf(c.env.SERVED_ROUTES);
    const control = await controlAutomation(db, workspaceId, visibility, id, status, Date.now);
    if (control.result === "not_found") throw new ApiError("automation_not_found");
    if (control.result === "not_controllable") throw new ApiError("automation_not_controllable");
    c.executionCtx.waitUntil(wake(c.env, control.wakes));
    return c.json(toAutomation(control.row), 200);
  },
);
