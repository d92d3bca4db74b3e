import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { isServed, type Part } from "../contract/served.ts";
import type { AppEnv } from "./context.ts";

/** The part of the contract that each middleware made here stands for. */
const PARTS = new WeakMap<object, Part>();

/** Lets a request through if its part of the contract is served; otherwise, there is no such route. */
export function served(part: Part) {
  const middleware = createMiddleware<AppEnv>(async (c, next) => {
    if (!isServed(c.env.SERVED_ROUTES, part)) throw new ApiError("route_not_found");
    await next();
  });
  PARTS.set(middleware, part);
  return middleware;
}

/** The part of the contract that a handler of a route stands for, if it was made by `served`. */
export function partOf(handler: object): Part | undefined {
  return PARTS.get(handler);
}
