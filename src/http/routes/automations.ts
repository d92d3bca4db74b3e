import { createRoute, z } from "@hono/zod-openapi";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { sendWakeUps } from "../../delivery/wake.ts";
import { AUTOMATION, PAUSED } from "../../events/samples.ts";
import { CONTROLLABLE, controlAutomation } from "../../recording/automation-changes.ts";
import {
  Automation,
  findAutomation,
  listAutomations,
  toAutomation,
} from "../../records/automations.ts";
import { jsonBody } from "../body.ts";
import { newApp, served } from "../context.ts";
import { listOrder, PageQuery, pageSchema, toPageBody, toPageRequest } from "../paging.ts";
import { body, errors, json } from "../responses.ts";
import { PAGES } from "./examples.ts";

export const automationRoutes = newApp();

/** The path of one automation. Any text is valid; one that is not an id gives 404. */
export const AutomationParams = z.object({
  id: z.string().openapi({
    param: {
      description: "The automation's `id`, which starts with `aut_`.",
      example: AUTOMATION.id,
    },
  }),
});

const AutomationPage = pageSchema(Automation, "AutomationPage", "automations");

automationRoutes.openapi(
  createRoute({
    method: "get",
    path: "/automations",
    operationId: "listAutomations",
    tags: ["Automations"],
    summary: "List the automations of the workspace",
    description: listOrder("when they first appeared here, which no response shows"),
    middleware: served("automations"),
    request: { query: PageQuery },
    responses: {
      200: json(AutomationPage, "A page of automations, newest first.", PAGES.automations),
      ...errors("InvalidQuery"),
    },
  }),
  async (c) => {
    const request = toPageRequest("automations", c.req.valid("query"));
    const found = await c.get("readAdmitted")((db) =>
      listAutomations(db, c.get("workspaceId"), request),
    );
    return c.json(toPageBody("automations", found), 200);
  },
);

automationRoutes.openapi(
  createRoute({
    method: "get",
    path: "/automations/{id}",
    operationId: "getAutomation",
    tags: ["Automations"],
    summary: "Read one automation",
    description:
      "An automation disappears, along with its runs, when its connected account is disconnected.",
    middleware: served("automations"),
    request: { params: AutomationParams },
    responses: {
      200: json(Automation, "The automation.", AUTOMATION),
      ...errors("AutomationNotFound"),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    if (!isId("automation", id)) throw new ApiError("automation_not_found");
    const row = await c.get("readAdmitted")((db) => findAutomation(db, c.get("workspaceId"), id));
    if (!row) throw new ApiError("automation_not_found");
    return c.json(toAutomation(row), 200);
  },
);

const AutomationControl = z
  .strictObject({
    status: z.enum(CONTROLLABLE).openapi({
      description:
        "`active` lets the automation run; `paused` stops it until it is activated again.",
      example: "paused",
    }),
  })
  .openapi("AutomationControl", { description: "The desired status of an automation." });

automationRoutes.openapi(
  createRoute({
    method: "patch",
    path: "/automations/{id}",
    operationId: "controlAutomation",
    tags: ["Automations"],
    summary: "Pause or activate an automation",
    description:
      "Emits `automation.status_changed`. A run may still begin shortly after a pause, until the app has learnt of it. If the status stays, the response is 200, `updated_at` stays and no event is emitted, so it is safe to repeat. `draft` and `error` give 422.",
    middleware: [served("automations.patch"), jsonBody],
    request: {
      params: AutomationParams,
      body: body(AutomationControl, { status: PAUSED.status }),
    },
    responses: {
      200: json(Automation, "The automation as it is now.", PAUSED),
      ...errors(
        "InvalidControl",
        "AutomationNotFound",
        "BodyTooLarge",
        "UnsupportedMediaType",
        "AutomationNotControllable",
      ),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    const { status } = c.req.valid("json");
    if (!isId("automation", id)) throw new ApiError("automation_not_found");
    const workspaceId = c.get("workspaceId");
    const { db, database } = c.get("placement");
    const { row, wakeUps } = await controlAutomation(db, workspaceId, id, status);
    c.executionCtx.waitUntil(sendWakeUps(c.env, database, wakeUps));
    return c.json(toAutomation(row), 200);
  },
);
