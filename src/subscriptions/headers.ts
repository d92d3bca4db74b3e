import { z } from "@hono/zod-openapi";
import { HEADER_VALUE_MAX_LENGTH, HEADERS_MAX } from "../contract/limits.ts";
import { expectDataKey, openUnder, sealUnder } from "../encryption/personal-data.ts";
import type { Owner } from "../events/bodies.ts";

/*
 * Headers of a subscriber's own, which each post carries: for instance a token that a gateway in front of the
 * receiver asks for. They are stored encrypted under the data key of their workspace, and never shown again;
 * their names are.
 */

/** A field name, and a value without outer spaces (RFC 9110, 5.1 and 5.5). */
const NAME = /^[\w!#$%&'*+.^`|~-]{1,100}$/;
const VALUE = new RegExp(`^(?! )[ -~]{1,${HEADER_VALUE_MAX_LENGTH}}(?<! )$`);

/** The names that are ours, HTTP's (RFC 9110, 7.6.1; RFC 9112) or Cloudflare's. */
const TAKEN =
  /^((x-service|webhook|content|proxy|cf)-.*|user-agent|host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|http2-settings)$/i;

/** Headers by name, as a subscriber gives them. */
export const OwnHeaders = z.record(z.string(), z.string()).superRefine((headers, context) => {
  const names = Object.keys(headers);
  const refuse = (message: string, reason: string, more = {}) =>
    context.addIssue({ code: "custom", message, params: { reason, ...more } });
  if (names.length > HEADERS_MAX)
    return refuse(`at most ${HEADERS_MAX}`, "out_of_range", { max: HEADERS_MAX });
  if (!names.every((name) => NAME.test(name)))
    return refuse("a name is not that of a header (RFC 9110)", "invalid_type");
  const taken = names.find((name) => TAKEN.test(name));
  if (taken) return refuse(`${taken} cannot be set: we, HTTP or Cloudflare do`, "invalid_type");
  if (new Set(names.map((name) => name.toLowerCase())).size < names.length)
    return refuse("two names are the same", "invalid_type");
  const bad = names.find((name) => !VALUE.test(headers[name] ?? ""));
  if (bad)
    refuse(
      `${bad} must be 1 to ${HEADER_VALUE_MAX_LENGTH} visible ASCII characters`,
      "invalid_type",
    );
});
export type OwnHeaders = z.infer<typeof OwnHeaders>;

interface HeadersOwner extends Owner {
  subscriptionId: string;
}

/**
 * What is stored of headers: their names, and all of them, encrypted.
 *
 * @throws Error if the workspace's data key cannot be opened.
 */
export async function sealHeaders(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  owner: HeadersOwner,
  headers: OwnHeaders,
): Promise<{ headerNames: string[]; sealedHeaders: string | null }> {
  const headerNames = Object.keys(headers);
  if (headerNames.length === 0) return { headerNames, sealedHeaders: null };
  const key = await expectDataKey(env.ENCRYPTION_KEYS, owner);
  return { headerNames, sealedHeaders: await sealUnder(key, ownerOf(owner), headers) };
}

/** The headers that each post carries. @throws Error if they cannot be decrypted. */
export async function openHeaders(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  owner: HeadersOwner,
  sealed: string | null,
): Promise<OwnHeaders> {
  if (sealed === null) return {};
  const key = await expectDataKey(env.ENCRYPTION_KEYS, owner);
  return openUnder(key, ownerOf(owner), sealed);
}

const ownerOf = ({ subscriptionId }: HeadersOwner) => `${subscriptionId}/headers`;
