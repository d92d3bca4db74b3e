import { z } from "@hono/zod-openapi";
import { type Details, InputError } from "../contract/input.ts";
import { HEADER_VALUE_MAX_LENGTH, HEADERS_MAX } from "../contract/limits.ts";
import { decryptJson, encryptJson } from "../encryption/seal.ts";
import { expectDataKey, type WorkspaceKey } from "../workspaces/data-keys.ts";

/*
 * The custom headers of a subscription, which each of its requests carries. For example, a gateway in front of the
 * endpoint may require a token. Their values are stored encrypted under the data key of the workspace, and are
 * never shown again. Their names are shown.
 */

/** A field name (RFC 9110, 5.1). */
const NAME = /^[\w!#$%&'*+.^`|~-]{1,100}$/;
/** A field value without outer spaces (RFC 9110, 5.5). */
const VALUE = new RegExp(`^(?! )[ -~]{1,${HEADER_VALUE_MAX_LENGTH}}(?<! )$`);

/**
 * Names that a subscription cannot set, in the form of `canonical`. These are our own headers, the headers of HTTP
 * itself (RFC 9110, 7.6; RFC 9111; RFC 9112; RFC 9113), and the headers of Cloudflare and other proxies. An endpoint
 * may trust the last ones for the IP address of its client. Ranges and conditions (RFC 9110, 13 and 14) are among them,
 * because they would change the response.
 */
const RESERVED = new RegExp(
  `^(${[
    "(x-service|webhook|content|proxy|cf|if|x-forwarded|x-original|x-envoy|fastly)-.*",
    "user-agent|host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|http2-settings",
    "accept-encoding|max-forwards|range|via|date|early-data|alt-used",
    "forwarded|x-forwarded|x-real-ip|x-client-ip|x-cluster-client-ip|x-remote-(ip|addr)|x-host|x-rewrite-url",
    "true-client-ip|client-ip|cdn-loop|x-http-method(-override)?|x-method-override",
  ].join("|")})$`,
);

/**
 * Returns a name as an endpoint may see it. Servers under CGI, WSGI or PHP read `_` as `-`, so they cannot tell two
 * such names apart.
 */
function canonical(name: string): string {
  return name.toLowerCase().replaceAll("_", "-");
}

/** Whether a subscription cannot set a header of this name. */
export function isReserved(name: string): boolean {
  return RESERVED.test(canonical(name));
}

/** Custom headers by name. */
export const CustomHeaders = z.preprocess(
  (value, context) => {
    // The record below would take `__proto__` for its prototype, and lose the other headers.
    if (typeof value === "object" && value !== null && Object.hasOwn(value, "__proto__"))
      context.addIssue({
        code: "custom",
        message: "__proto__ cannot be set",
        params: { reason: "invalid_type" },
      });
    return value;
  },
  z.record(z.string(), z.string()).superRefine((headers, context) => {
    const fault = findFault(headers);
    if (fault) context.addIssue({ code: "custom", message: fault.message, params: fault.details });
  }),
);
export type CustomHeaders = z.infer<typeof CustomHeaders>;

/** Returns the first fault of headers; null if they are valid. */
function findFault(headers: CustomHeaders): { message: string; details: Details } | null {
  const names = Object.keys(headers);
  const invalid = (message: string) => ({ message, details: { reason: "invalid_type" as const } });
  if (names.length > HEADERS_MAX)
    return {
      message: `at most ${HEADERS_MAX}`,
      details: { reason: "out_of_range", max: HEADERS_MAX },
    };
  if (!names.every((name) => NAME.test(name)))
    return invalid("a name is not valid for a header (RFC 9110, 5.1)");
  const reserved = names.find(isReserved);
  if (reserved) return invalid(`${reserved} is reserved for the service, HTTP or a proxy`);
  if (new Set(names.map(canonical)).size < names.length) return invalid("two names are the same");
  const bad = names.find((name) => !VALUE.test(headers[name] ?? ""));
  if (bad)
    return invalid(`${bad} must be 1 to ${HEADER_VALUE_MAX_LENGTH} visible ASCII characters`);
  return null;
}

/** The changes of a call to the custom headers of a subscription. */
export interface HeaderChanges {
  /** Replaces all headers; null removes all. */
  headers?: CustomHeaders | null | undefined;
  /** Adds these headers, or replaces those of the same names. */
  setHeaders?: CustomHeaders | null | undefined;
  /** Removes the headers of these names. */
  removeHeaders?: string[] | null | undefined;
}

/**
 * Applies changes to the current headers.
 *
 * @throws InputError if there would be too many headers.
 */
export function changeHeaders(present: CustomHeaders, changes: HeaderChanges): CustomHeaders {
  const { headers, setHeaders, removeHeaders } = changes;
  if (headers !== undefined) return headers ?? {};
  const gone = [...Object.keys(setHeaders ?? {}), ...(removeHeaders ?? [])].map(canonical);
  const kept = Object.entries(present).filter(([name]) => !gone.includes(canonical(name)));
  const changed = { ...Object.fromEntries(kept), ...setHeaders };
  const fault = findFault(changed);
  if (fault) throw new InputError("setHeaders", fault.message, fault.details);
  return changed;
}

/** Lists the names of the headers that a subscription loses because its URL gets another origin. */
export function listDropped(
  names: string[],
  left: CustomHeaders,
  { headers, removeHeaders }: HeaderChanges,
): string[] {
  if (headers !== undefined) return [];
  const wanted = [...Object.keys(left), ...(removeHeaders ?? [])].map(canonical);
  return names.filter((name) => !wanted.includes(canonical(name)));
}

interface HeadersOwner extends WorkspaceKey {
  subscriptionId: string;
}

/**
 * Makes the stored form of headers: their names in plain text, and the headers encrypted.
 *
 * @throws Error if the workspace's data key cannot be opened.
 */
export async function sealHeaders(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  owner: HeadersOwner,
  headers: CustomHeaders,
): Promise<{ headerNames: string[]; sealedHeaders: string | null }> {
  // A workspace without custom headers needs no readable data key.
  if (Object.keys(headers).length === 0) return { headerNames: [], sealedHeaders: null };
  return sealHeadersUnder(await expectDataKey(env.ENCRYPTION_KEYS, owner), owner, headers);
}

/** Makes the stored form of headers under the data key of their workspace. */
export async function sealHeadersUnder(
  key: CryptoKey,
  owner: Pick<HeadersOwner, "subscriptionId">,
  headers: CustomHeaders,
): Promise<{ headerNames: string[]; sealedHeaders: string | null }> {
  const headerNames = Object.keys(headers);
  if (headerNames.length === 0) return { headerNames, sealedHeaders: null };
  return { headerNames, sealedHeaders: await encryptJson(key, ownerOf(owner), headers) };
}

/** Decrypts the headers that each request carries. @throws Error if they cannot be decrypted. */
export async function openHeaders(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  owner: HeadersOwner,
  sealed: string | null,
): Promise<CustomHeaders> {
  if (sealed === null) return {};
  const key = await expectDataKey(env.ENCRYPTION_KEYS, owner);
  return decryptJson(key, ownerOf(owner), sealed);
}

const ownerOf = ({ subscriptionId }: Pick<HeadersOwner, "subscriptionId">) =>
  `${subscriptionId}/headers`;
