import { describe, expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { signPortalToken, verifyPortalToken } from "../../../src/platform/portal-token.ts";

const NOW = 1_790_000_000_000;
const OLD = `old:${btoa("o".repeat(32))}`;
const NEW = `new:${btoa("n".repeat(32))}`;
const grant = { workspaceId: randomId("workspace"), endsAt: NOW + 60_000 };
const token = await signPortalToken(OLD, "session", grant);

describe("a portal token", () => {
  test("contains what it grants, and is URL-safe", async () => {
    expect(await verifyPortalToken(OLD, "session", token, NOW)).toEqual(grant);
    expect(encodeURIComponent(token)).toBe(token);
    expect(token.length).toBeLessThan(100);
  });

  test("expires on time", async () => {
    expect(await verifyPortalToken(OLD, "session", token, grant.endsAt - 1)).toEqual(grant);
    expect(await verifyPortalToken(OLD, "session", token, grant.endsAt)).toBeNull();
  });

  test("may expire before its grant ends, but not after", async () => {
    const { endsAt } = grant;
    const early = await signPortalToken(OLD, "link", grant, endsAt - 10_000);
    expect(await verifyPortalToken(OLD, "link", early, endsAt - 10_001)).toEqual(grant);
    expect(await verifyPortalToken(OLD, "link", early, endsAt - 10_000)).toBeNull();
    const late = await signPortalToken(OLD, "link", grant, endsAt + 10_000);
    expect(await verifyPortalToken(OLD, "link", late, endsAt - 1)).toEqual(grant);
    expect(await verifyPortalToken(OLD, "link", late, endsAt)).toBeNull();
  });

  test("is valid for its purpose only", async () => {
    const link = await signPortalToken(OLD, "link", grant);
    // They say the same, but are signed differently.
    expect(link.split(".").slice(0, 3)).toEqual(token.split(".").slice(0, 3));
    expect(await verifyPortalToken(OLD, "link", link, NOW)).toEqual(grant);
    expect(await verifyPortalToken(OLD, "session", link, NOW)).toBeNull();
    expect(await verifyPortalToken(OLD, "link", token, NOW)).toBeNull();
  });

  test("is accepted by a machine whose clock is behind", async () => {
    expect(await verifyPortalToken(OLD, "session", token, NOW - 60_000)).toEqual(grant);
  });

  test("is signed by the first key of the ring, and accepted for every key", async () => {
    expect(await verifyPortalToken(`${NEW},${OLD}`, "session", token, NOW)).toEqual(grant);
    expect(await verifyPortalToken(NEW, "session", token, NOW)).toBeNull();
    const renewed = await signPortalToken(`${NEW},${OLD}`, "session", grant);
    expect(await verifyPortalToken(OLD, "session", renewed, NOW)).toBeNull();
    expect(await verifyPortalToken(NEW, "session", renewed, NOW)).toEqual(grant);
  });

  test("is rejected if any of its characters is changed", async () => {
    for (const [i, character] of [...token].entries()) {
      for (const other of ["a", "b", "_", ".", "é", ""]) {
        if (other === character) continue;
        const changed = token.slice(0, i) + other + token.slice(i + 1);
        expect(await verifyPortalToken(OLD, "session", changed, NOW), changed).toBeNull();
      }
    }
  });

  test.each(["", ".", "..", "wks_.1.", `${token}.`, ` ${token}`, `${token}=`, "x".repeat(100_000)])(
    "cannot be invented: %s",
    async (invented) => {
      expect(await verifyPortalToken(OLD, "session", invented, NOW)).toBeNull();
    },
  );
});
