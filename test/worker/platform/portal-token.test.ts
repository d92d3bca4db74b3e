import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { signPortalToken, verifyPortalToken } from "../../../src/platform/portal-token.ts";
import { grantOf } from "../../support/portal.ts";

const SECRET = env.PORTAL_SIGNING_KEYS;
const END = 2_000_000;
const grant = grantOf("wks_aaaaaaaaaaaaaaaaaaaaaaaaa", END);

test.each([
  ["its grant ends", undefined, END],
  ["it expires, although its grant ends later", END - 60_000, END - 60_000],
])("A token is valid until the millisecond before %s", async (_, expiresAt, end) => {
  const token = await signPortalToken(SECRET, "session", grant, expiresAt);
  expect(await verifyPortalToken(SECRET, "session", token, end - 1)).toEqual(grant);
  expect(await verifyPortalToken(SECRET, "session", token, end)).toBeNull();
});
