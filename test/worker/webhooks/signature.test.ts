import { expect, test } from "vitest";
import { mintSecret, signatureHeaders } from "../../../src/webhooks/signature.ts";

/** The secret with the bytes 0 to 31. */
const SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

// Computed with Python's hmac module.
test.each([
  {
    ...{ eventId: "evt_1", body: '{"name":"Zoë “€” 🌻"}', timestamp: 1_767_225_599 },
    hex: "5366cc430a16f49aaff266b0b12e6cf37f1206f8833c94cbe6e834f269d689b1",
    base64: "X0N8JHvBnzwMUBa8lE4aneXSIdy1Cxdp9r4+t88z3WM=",
  },
  {
    ...{ eventId: "evt_2", body: "", timestamp: 0 },
    hex: "d8aec949f571341d52ef7916304be7b655fd60c3d50fd303f7fb35660d886827",
    base64: "6cigECKcJE1QsaZjGOQchuERBDeADtS42j1whWIKGK4=",
  },
])("the signature of $eventId is that of the fixed vector, in both schemes", async (vector) => {
  const { eventId, body, timestamp, hex, base64 } = vector;
  expect(await signatureHeaders(SECRET, eventId, body, timestamp * 1000 + 999)).toEqual({
    "X-Service-Signature": `t=${timestamp},v1=${hex}`,
    "webhook-id": eventId,
    "webhook-timestamp": String(timestamp),
    "webhook-signature": `v1,${base64}`,
  });
});

test("a signing secret is whsec_ followed by the base64 of 32 random bytes", () => {
  const secrets = Array.from({ length: 50 }, mintSecret);
  for (const secret of secrets) expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  expect(new Set(secrets).size).toBe(50);
});
