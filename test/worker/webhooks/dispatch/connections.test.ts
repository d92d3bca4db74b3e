import { describe, expect, test } from "vitest";
import { sleep } from "../../../../src/timing.ts";
import { Connections, STUCK_MS } from "../../../../src/webhooks/dispatch/connections.ts";

const ONE = new Map([["whk_1", "a"]]);
const TWO = new Map([...ONE, ["whk_2", "b"]]);

/** Queues up, and notes in `order` whose turn has come. */
function queue(connections: Connections, order: string[], workspaceId: string, name = workspaceId) {
  const place = connections.queueUp(workspaceId, () => void order.push(name));
  return { place, leave: () => connections.leave(place) };
}

describe("the connections of a dispatch", () => {
  test("go to who has queued the longest", () => {
    const order: string[] = [];
    const connections = new Connections(1, ONE);
    const [first, , third] = ["1", "2", "3"].map((name) => queue(connections, order, "a", name));
    expect(order).toEqual(["1"]);
    third?.leave();
    first?.leave();
    expect(order).toEqual(["1", "2"]);
  });

  test("are all for one workspace, unless another is served: then it gets three", () => {
    for (const [served, connected] of [
      [ONE, 5],
      [TWO, 3],
    ] as const) {
      const connections = new Connections(5, served);
      const places = Array.from({ length: 6 }, () => queue(connections, [], "a").place);
      expect(places.filter(({ isConnected }) => isConnected)).toHaveLength(connected);
      expect(queue(connections, [], "b").place.isConnected).toBe(served === TWO);
    }
  });

  test("are stuck once nobody has got or given back one for half a second", async () => {
    const connections = new Connections(1, ONE);
    const { leave } = queue(connections, [], "a");
    await sleep(STUCK_MS + 50);
    expect(connections.areStuck).toBe(true);
    leave();
    expect(connections.areStuck).toBe(false);
  });
});
