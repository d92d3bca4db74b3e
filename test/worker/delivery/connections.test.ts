import { expect, test } from "vitest";
import { Connections } from "../../../src/delivery/connections.ts";

test("A session that leaves the queue for a connection takes no other's place with it", () => {
  const connections = new Connections(1);
  const queueUp = () => connections.queueUp("wks_1", () => {});
  const [first, second, third] = [queueUp(), queueUp(), queueUp()];
  connections.leave(third);
  connections.leave(first);
  expect([second.isConnected, third.isConnected]).toEqual([true, false]);
});
