import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { isServed, type Part } from "../contract/served.ts";
import type { AppEnv } from "./context.ts";

/** The part of the contract that each middleware made by `served` stands for. */
const PARTS = new WeakMap<object, Part>();

/** Makes a middleware that responds with 404 unless the deployment serves this part of the contract. */
export function served(part: Part) {
  const middleware = createMiddleware<AppEnv>(async (c, next) => {
    if (!isServed(c.env.SERVED_ROUTES, part)) throw new ApiError("route_not_found");
    await next();
  });
  PARTS.set(middleware, part);
  return middleware;
}

/** Returns the part of the contract that a handler stands for, if it was made by `served`. */
export function partOf(handler: object): Part | undefined {
  return PARTS.get(handler);
}
