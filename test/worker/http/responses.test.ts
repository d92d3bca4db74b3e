import { createRoute, z } from "@hono/zod-openapi";
import { test } from "vitest";
import { newApp } from "../../../src/http/context.ts";
import { errors, json } from "../../../src/http/responses.ts";

const route = createRoute({
  method: "get",
  path: "/count",
  responses: {
    200: json(z.object({ count: z.number() }), "The count.", { count: 1 }),
    ...errors("InvalidQuery"),
  },
});

test("an answer that a route does not describe does not compile", () => {
  newApp().openapi(route, (c) => c.json({ count: 1 }, 200));
  // @ts-expect-error a value of another type
  newApp().openapi(route, (c) => c.json({ count: "1" }, 200));
  // @ts-expect-error a field is missing
  newApp().openapi(route, (c) => c.json({}, 200));
  // @ts-expect-error another status
  newApp().openapi(route, (c) => c.json({ count: 1 }, 201));
  // @ts-expect-error an error: handlers throw them
  newApp().openapi(route, (c) => c.json({ error: "x" }, 400));
});
