import { expect, test } from "vitest";
import { app } from "../../../src/http/app.ts";
import { send } from "../../support/api.ts";

test("Hono matches all routes with its fastest router", async () => {
  await send("/v1/leads");
  expect(app.router.name).toBe("SmartRouter + RegExpRouter");
});
