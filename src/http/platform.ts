import type { Context } from "hono";
import { ApiError } from "../contract/errors.ts";
import { InputError, parameterOf, toApiError } from "../contract/input.ts";
import { RECORD_MAX_BYTES, RECORDS_MAX } from "../contract/limits.ts";
import { findKeyId } from "../encryption/key-ring.ts";
import { invoke } from "../platform/invoke.ts";
import { isMethod, OPERATIONS } from "../platform/operations.ts";
import { failedAuthentication, parseBearer, setAddressPseudonym } from "./authentication.ts";
import { readJson } from "./body.ts";
import { type AppEnv, newApp } from "./context.ts";

/** The limits of a call: a hundred records of the largest size, with the JSON around them. */
const CALL_LIMITS = {
  bytes: RECORDS_MAX * (RECORD_MAX_BYTES + 16) + 4_096,
  commas: Number.POSITIVE_INFINITY,
};

/**
 * The Platform API over HTTPS, for platforms that are not Workers. It has the operations of the RPC entrypoint, with
 * the same inputs, results and messages. The path does not exist unless `PLATFORM_KEYS` is set.
 */
export const platform = newApp();

platform.post("/platform/*", async (c) => {
  const { PLATFORM_KEYS } = c.env;
  if (!PLATFORM_KEYS) throw new ApiError("route_not_found");
  await setAddressPseudonym(c);
  const token = parseBearer(c.req.header("Authorization"));
  const keyId = token && findKeyId("PLATFORM_KEYS", PLATFORM_KEYS, token);
  if (!keyId) throw await failedAuthentication(c);
  const input = await readJson(c, CALL_LIMITS);
  const method = c.req.path.slice("/platform/".length);
  if (!isMethod(method)) throw new ApiError("route_not_found");
  try {
    const call = { env: c.env, ctx: c.executionCtx };
    return c.json(await invoke(method, OPERATIONS[method], call, input, `https:${keyId}`));
  } catch (error) {
    return refuse(c, error);
  }
});

/** Responds to invalid input with the message of the RPC entrypoint, which is for developers and operators. */
function refuse(c: Context<AppEnv>, error: unknown): Response {
  if (!(error instanceof InputError)) throw error;
  const { message } = error;
  const details = { ...parameterOf(error), ...toApiError(error).details };
  return c.json({ error: { code: "invalid_request", message, details } }, 400);
}
