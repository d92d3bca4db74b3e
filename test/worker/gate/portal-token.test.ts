import { describe, expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { signPortalToken, verifyPortalToken } from "../../../src/gate/portal-token.ts";

const NOW = 1_790_000_000_000;
const OLD = `old:${btoa("o".repeat(32))}`;
const NEW = `new:${btoa("n".repeat(32))}`;
const grant = { workspaceId: randomId("workspace"), endsAt: NOW + 60_000 };
const token = await signPortalToken(OLD, grant);

describe("a token of the portal", () => {
  test("tells what it grants, and is fit for a URL", async () => {
    expect(await verifyPortalToken(OLD, token, NOW)).toEqual(grant);
    expect(encodeURIComponent(token)).toBe(token);
    expect(token.length).toBeLessThan(90);
  });

  test("ends when it says", async () => {
    expect(await verifyPortalToken(OLD, token, grant.endsAt - 1)).toEqual(grant);
    expect(await verifyPortalToken(OLD, token, grant.endsAt)).toBeNull();
  });

  test("is read by every key of the ring, and signed by the first", async () => {
    expect(await verifyPortalToken(`${NEW},${OLD}`, token, NOW)).toEqual(grant);
    expect(await verifyPortalToken(NEW, token, NOW)).toBeNull();
    const renewed = await signPortalToken(`${NEW},${OLD}`, grant);
    expect(await verifyPortalToken(OLD, renewed, NOW)).toBeNull();
    expect(await verifyPortalToken(NEW, renewed, NOW)).toEqual(grant);
  });

  test("is refused when any character of it is another", async () => {
    for (const [i, character] of [...token].entries()) {
      for (const other of ["a", "b", "_", ".", "é", ""]) {
        if (other === character) continue;
        const changed = token.slice(0, i) + other + token.slice(i + 1);
        expect(await verifyPortalToken(OLD, changed, NOW), changed).toBeNull();
      }
    }
  });

  test.each(["", ".", "..", "wks_.1.", `${token}.`, ` ${token}`, `${token}=`, "x".repeat(100_000)])(
    "is not what somebody invents: %s",
    async (invented) => {
      expect(await verifyPortalToken(OLD, invented, NOW)).toBeNull();
    },
  );
});
