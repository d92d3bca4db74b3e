import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { type Feature, isServed } from "../contract/served.ts";
import type { AppEnv } from "./context.ts";

/** The feature of the contract that each middleware made by `served` stands for. */
const FEATURES = new WeakMap<object, Feature>();

/** Makes a middleware that responds with 404 unless the deployment serves this feature of the contract. */
export function served(feature: Feature) {
  const middleware = createMiddleware<AppEnv>(async (c, next) => {
    if (!isServed(c.env.SERVED_ROUTES, feature)) throw new ApiError("route_not_found");
    await next();
  });
  FEATURES.set(middleware, feature);
  return middleware;
}

/** Returns the feature of the contract that a handler stands for, if it was made by `served`. */
export function featureOf(handler: object): Feature | undefined {
  return FEATURES.get(handler);
}
