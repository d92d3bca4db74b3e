import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { openDatabase } from "../db/client.ts";
import { addressName } from "../gate/address-gate.ts";
import { hashApiKey, isApiKey } from "../gate/api-key.ts";
import type { Figures } from "../gate/window.ts";
import type { AppEnv } from "./context.ts";

/**
 * The gate of everything under `/v1`: admits a request whose key is good and has quota left, and
 * tells the handlers its workspace.
 *
 * @throws ApiError `invalid_api_key`, `workspace_access_denied` or `rate_limited`, in this order.
 */
export const gate = createMiddleware<AppEnv>(async (c, next) => {
  const key = readBearer(c.req.header("Authorization"));
  if (key === null || !isApiKey(key)) throw await failure(c);
  const keyHash = await hashApiKey(key);
  const admission = await c.env.KEY_GATE.getByName(keyHash).admit(keyHash);
  if (admission.verdict === "unknown_key") throw await failure(c);
  c.set("workspaceId", admission.workspaceId);
  c.set("figures", admission.figures);
  if (admission.verdict === "access_denied") throw new ApiError("workspace_access_denied");
  if (admission.verdict === "quota_exceeded") throw rateLimited(admission.figures);
  c.set("db", openDatabase(c.env.DB));
  await next();
});

/** The key of an `Authorization` header (RFC 6750; the scheme in any case); `null` without one. */
function readBearer(header: string | undefined): string | null {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}

/** Counts a failed authentication against the address, and says how it is answered. */
async function failure(c: Context<AppEnv>): Promise<ApiError> {
  const { blocked, figures } = await addressGate(c).fail();
  c.set("figures", figures);
  return blocked ? rateLimited(figures) : new ApiError("invalid_api_key");
}

/** The failure window of the address that a request comes from. */
export function addressGate(c: Context<AppEnv>) {
  return c.env.ADDRESS_GATE.getByName(addressName(c.req.header("CF-Connecting-IP")));
}

function rateLimited({ resetSeconds }: Figures): ApiError {
  return new ApiError("rate_limited", { retry_after_seconds: resetSeconds });
}
