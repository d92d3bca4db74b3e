import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { isServed, type Part } from "../contract/served.ts";
import type { AppEnv } from "./context.ts";

/** Lets a request through if its part of the contract is served; otherwise, there is no such route. */
export function served(part: Part) {
  return createMiddleware<AppEnv>(async (c, next) => {
    if (!isServed(c.env.SERVED_ROUTES, part)) throw new ApiError("route_not_found");
    await next();
  });
}
