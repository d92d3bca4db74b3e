import * as z from "zod";
import { ERRORS, type ErrorCode, REASONS, type Reason } from "./errors.ts";

/** The schema of the error body, for the OpenAPI document and for tests. */
export const ErrorBody = z
  .object({
    error: z
      .object({
        code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]).meta({
          id: "ErrorCode",
          description:
            "What went wrong. Stable, and a closed list: branch on it, not on the status, which several codes share.",
        }),
        message: z.string().meta({
          description: "The same for people, in French. Show it, never compare it: it may change.",
          example: ERRORS.invalid_request.message,
        }),
        details: z
          .object({
            parameter: z.string().optional().meta({
              description:
                "The parameter or property that is wrong; a dot leads into a list or object, as in `events.0`.",
              example: "limit",
            }),
            reason: z
              .enum(Object.keys(REASONS) as [Reason, ...Reason[]])
              .meta({
                id: "ErrorReason",
                description:
                  "What is wrong with the request. New reasons are announced: treat one that you do not know as `invalid_request` alone.",
              })
              .optional(),
            allowed: z
              .array(z.string())
              .optional()
              .meta({
                description: "The values that would have been right.",
                example: ["active", "paused"],
              }),
            min: z.int().optional().meta({
              description: "The smallest value, or the least number of items.",
              example: 1,
            }),
            max: z
              .int()
              .optional()
              .meta({ description: "The largest value, size or number.", example: 100 }),
            retry_after_seconds: z
              .int()
              .optional()
              .meta({ description: "How long to wait, as `Retry-After` says too.", example: 42 }),
          })
          .meta({
            description: "What helps to mend the request; an empty object when nothing does.",
          }),
      })
      .meta({ description: "What went wrong, for programs and for people." }),
  })
  .meta({ id: "Error", description: "The body of every error." });
