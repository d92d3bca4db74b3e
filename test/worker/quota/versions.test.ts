import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { AddressGate } from "../../../src/quota/address-gate.ts";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { KeyGate } from "../../../src/quota/key-gate.ts";
import { openWorkspace } from "../../support/api.ts";

/*
 * After a deployment, gates may run the previous code beside the new Worker for minutes, or the other
 * way round. So a method is never renamed or removed in one step, and a new parameter is optional.
 */

test("the gates have the methods that the previous version calls: change them in two deployments", () => {
  const methodsOf = ({ prototype }: { prototype: object }) =>
    Object.getOwnPropertyNames(prototype).toSorted();
  expect(methodsOf(KeyGate)).toEqual(["admit", "advance", "constructor", "forget", "usage"]);
  expect(methodsOf(AddressGate)).toEqual(["alarm", "constructor", "fail", "peek"]);
});

test("a gate answers a Worker that says less than this one, and one that says more", async () => {
  const { apiKey, workspaceId } = await openWorkspace({ requestsPerWindow: 5 });
  const hash = await hashApiKey(apiKey);
  const gate = env.KEY_GATE.getByName(hash) as unknown as {
    admit(...args: unknown[]): Promise<object>;
    advance(...args: unknown[]): Promise<void>;
    forget(...args: unknown[]): Promise<void>;
  };
  const later = { fromALaterVersion: true };
  expect(await gate.admit(hash)).toMatchObject({ verdict: "admitted", workspaceId });
  await gate.advance("0", "DB", later);
  await gate.forget(later);
  expect(await gate.admit(hash, undefined, undefined, later)).toMatchObject({
    verdict: "admitted",
    rateLimit: { remaining: 3 },
  });
  const address = env.ADDRESS_GATE.getByName("192.0.2.1") as unknown as {
    fail(...args: unknown[]): Promise<object>;
    peek(...args: unknown[]): Promise<object>;
  };
  const failed = { blocked: null, rateLimit: { remaining: 19 } };
  expect(await address.fail("192.0.2.1")).toMatchObject(failed);
  expect(await address.peek("192.0.2.1", undefined, later)).toMatchObject(failed.rateLimit);
});
