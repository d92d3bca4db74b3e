import type { ErrorCode } from "../contract/errors.ts";

/** Returns the URL of the section of the docs that explains an error code, relative to this deployment. */
export function helpFor(code: ErrorCode): string {
  return `/docs/guides/errors#${code.replaceAll("_", "-")}`;
}
