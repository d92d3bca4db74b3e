import { z } from "@hono/zod-openapi";
import { AutomationStatus } from "./enumerations.ts";
import { ERRORS, type ErrorCode, REASONS, type Reason } from "./errors.ts";

/** The schema of the error body; used for the OpenAPI document and in tests. */
export const ErrorBodySchema = z
  .object({
    error: z
      .object({
        code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]).openapi("ErrorCode", {
          description:
            "Identifies the error. The list is stable and closed. Handle errors by their code, because several codes share a status.",
        }),
        message: z.string().openapi({
          description:
            "The error in French, for the users of the app. Display it, but do not compare it, because it may change.",
          example: ERRORS.invalid_request.message,
        }),
        details: z
          .object({
            parameter: z.string().optional().openapi({
              description:
                "The invalid parameter or property. Dots separate the levels of a path, as in `events.0`.",
              example: "limit",
            }),
            reason: z
              .union([z.enum(Object.keys(REASONS) as [Reason, ...Reason[]]), z.string()])
              .openapi("ErrorReason", {
                description:
                  "Why the request is invalid. The list is open, and new reasons are announced. Treat an unknown one as a plain `invalid_request`.",
              })
              .optional(),
            allowed: z
              .array(z.string())
              .optional()
              .openapi({
                description: "The valid values.",
                example: ["active", "paused"],
              }),
            min: z.int().optional().openapi({
              description: "The minimum value or number of items.",
              example: 1,
            }),
            max: z.int().optional().openapi({
              description: "The maximum value, size or number of items.",
              example: 100,
            }),
            status: AutomationStatus.optional().openapi({
              description: "The automation's current status, in which it cannot be controlled.",
              example: "draft",
            }),
            retry_after_seconds: z.int().optional().openapi({
              description: "Seconds to wait before retrying, as in `Retry-After`.",
              example: 42,
            }),
          })
          .openapi({
            description: "Details that help to fix the request; an empty object if there are none.",
          }),
      })
      .openapi({ description: "The error, for programs and for people." }),
  })
  .openapi("Error", { description: "The body of every error." });
