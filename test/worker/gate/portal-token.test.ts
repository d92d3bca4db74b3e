import { describe, expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { signPortalToken, verifyPortalToken } from "../../../src/gate/portal-token.ts";

const NOW = 1_790_000_000_000;
const OLD = `old:${btoa("o".repeat(32))}`;
const NEW = `new:${btoa("n".repeat(32))}`;
const grant = { workspaceId: randomId("workspace"), endsAt: NOW + 60_000 };
const token = await signPortalToken(OLD, grant);

describe("a portal token", () => {
  test("contains what it grants, and is URL-safe", async () => {
    expect(await verifyPortalToken(OLD, token, NOW)).toEqual(grant);
    expect(encodeURIComponent(token)).toBe(token);
    expect(token.length).toBeLessThan(90);
  });

  test("expires on time", async () => {
    expect(await verifyPortalToken(OLD, token, grant.endsAt - 1)).toEqual(grant);
    expect(await verifyPortalToken(OLD, token, grant.endsAt)).toBeNull();
  });

  test("is signed by the first key of the ring, and accepted for every key", async () => {
    expect(await verifyPortalToken(`${NEW},${OLD}`, token, NOW)).toEqual(grant);
    expect(await verifyPortalToken(NEW, token, NOW)).toBeNull();
    const renewed = await signPortalToken(`${NEW},${OLD}`, grant);
    expect(await verifyPortalToken(OLD, renewed, NOW)).toBeNull();
    expect(await verifyPortalToken(NEW, renewed, NOW)).toEqual(grant);
  });

  test("is rejected if any of its characters is changed", async () => {
    for (const [i, character] of [...token].entries()) {
      for (const other of ["a", "b", "_", ".", "é", ""]) {
        if (other === character) continue;
        const changed = token.slice(0, i) + other + token.slice(i + 1);
        expect(await verifyPortalToken(OLD, changed, NOW), changed).toBeNull();
      }
    }
  });

  test.each(["", ".", "..", "wks_.1.", `${token}.`, ` ${token}`, `${token}=`, "x".repeat(100_000)])(
    "cannot be invented: %s",
    async (invented) => {
      expect(await verifyPortalToken(OLD, invented, NOW)).toBeNull();
    },
  );
});
