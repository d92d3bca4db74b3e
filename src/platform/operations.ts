import type { z } from "@hono/zod-openapi";
import * as apiKeys from "./api-keys.ts";
import * as auditTrail from "./audit-trail.ts";
import * as databases from "./databases.ts";
import * as deliveries from "./deliveries.ts";
import * as health from "./health.ts";
import type { Operation } from "./operation.ts";
import * as personalData from "./personal-data.ts";
import * as records from "./records.ts";
import * as webhooks from "./webhooks.ts";
import * as workspaces from "./workspaces.ts";

/*
 * To add an operation: one value, exported under its name from a file that is imported here. For the portal, add a line to
 * `ALLOWED` in `src/http/portal/portal.ts`.
 */

/**
 * All operations of the Platform API, by name: the exports of the files imported here. operation.ts says what an
 * operation is, invoke.ts calls one, and entrypoint.ts offers them over RPC.
 */
export const OPERATIONS = {
  ...workspaces,
  ...apiKeys,
  ...records,
  ...webhooks,
  ...deliveries,
  ...personalData,
  ...databases,
  ...auditTrail,
  ...health,
} satisfies Record<string, Operation>;

type Operations = typeof OPERATIONS;
export type PlatformMethod = keyof Operations;

export function isMethod(name: string): name is PlatformMethod {
  return Object.hasOwn(OPERATIONS, name);
}

/** The input of an operation in the form that its caller writes. */
export type PlatformInput<M extends PlatformMethod> = z.input<Operations[M]["input"]>;
export type PlatformOutput<M extends PlatformMethod> = z.output<Operations[M]["output"]>;
