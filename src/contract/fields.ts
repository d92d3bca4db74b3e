import { z } from "@hono/zod-openapi";
import { ID_PREFIXES, type IdKind } from "./ids.ts";

/** An id as clients see it: opaque except for its prefix. */
export function idField(kind: IdKind, about: string) {
  const prefix = ID_PREFIXES[kind];
  return z.string().openapi({
    description: `${about} Opaque; starts with \`${prefix}\`.`,
    example: `${prefix}0q2m5x8c1v7b4n9k3j6h0g2f5`,
  });
}

/** A time, as `isoTime` formats it. */
export function timeField(about: string) {
  return z.iso.datetime().openapi({
    description: `${about} ISO 8601, UTC, with the suffix \`Z\`.`,
    example: "2026-03-14T09:26:53.589Z",
  });
}
