import { describe, expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { signPortalToken, verifyPortalToken } from "../../../src/platform/portal-token.ts";

const NOW = 1_790_000_000_000;
const OLD = `old:${btoa("o".repeat(32))}`;
const NEW = `new:${btoa("n".repeat(32))}`;
const grant = { workspaceId: randomId("workspace"), endsAt: NOW + 60_000 };
const token = await signPortalToken(OLD, "session", grant);

/** What a session's token grants. */
const verified = (text: string, now: number) => verifyPortalToken(OLD, "session", text, now);

describe("a portal token", () => {
  test("contains what it grants, and is URL-safe", async () => {
    // Also by a machine whose clock is behind.
    for (const now of [NOW, NOW - 60_000]) expect(await verified(token, now)).toEqual(grant);
    expect(encodeURIComponent(token)).toBe(token);
    expect(token.length).toBeLessThan(100);
  });

  test.each([
    ["on time", undefined, grant.endsAt],
    ["before its grant ends", grant.endsAt - 10_000, grant.endsAt - 10_000],
    ["when its grant ends, not after", grant.endsAt + 10_000, grant.endsAt],
  ])("expires %s", async (_, expiresAt, end) => {
    const dated = await signPortalToken(OLD, "session", grant, expiresAt);
    expect([await verified(dated, end - 1), await verified(dated, end)]).toEqual([grant, null]);
  });

  test("is valid for its purpose only", async () => {
    const link = await signPortalToken(OLD, "link", grant);
    // They say the same, but are signed differently.
    expect(link.split(".").slice(0, 3)).toEqual(token.split(".").slice(0, 3));
    expect(await verifyPortalToken(OLD, "link", link, NOW)).toEqual(grant);
    expect(await verifyPortalToken(OLD, "session", link, NOW)).toBeNull();
    expect(await verifyPortalToken(OLD, "link", token, NOW)).toBeNull();
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
        expect(await verified(changed, NOW), changed).toBeNull();
      }
    }
  });

  test.each(["", ".", "..", "wks_.1.", `${token}.`, ` ${token}`, `${token}=`, "x".repeat(100_000)])(
    "cannot be invented: %s",
    async (invented) => {
      expect(await verified(invented, NOW)).toBeNull();
    },
  );
});
