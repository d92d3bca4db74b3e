import { describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

const FLAG = "queue_consumer_no_wait_for_wait_until";
const LEADS = 40;
/** Long enough to outlast the hand-off to the background, too short to count as slow. */
const ANSWER_MS = 400;

const receiver = await opened(
  startReceiver(async ({ path }) => {
    if (path === "/waits") await new Promise((resolve) => setTimeout(resolve, ANSWER_MS));
    return path === "/hangs" ? new Promise<number>(() => {}) : 204;
  }),
);
const runtime = await opened(startRuntime({ withoutFlags: [FLAG] }));

async function subscribe(path: string): Promise<{ workspaceId: string }> {
  const workspace = await openWorkspace(runtime);
  await workspace.subscribe(`${receiver.url}${path}`);
  return workspace;
}

const receivedAt = (path: string) => receiver.posts.filter((post) => post.path === path);

describe(`without ${FLAG}, which is marked experimental`, () => {
  test("every event is delivered, though a queue waits for each dispatch to end", async () => {
    const { PLATFORM } = runtime.env;
    const [hanging, waiting, fast] = await Promise.all(["/hangs", "/waits", "/"].map(subscribe));
    const record = async (workspaceId: string, from: number, count: number) => {
      const agent = { reference: "agent-1", name: "Lumière" };
      const leads = Array.from({ length: count }, (_, i) => ({
        reference: `lead-${from + i}`,
        source: "widget" as const,
        agent,
      }));
      await PLATFORM.recordLeads({ workspaceId, leads });
    };
    await record(hanging?.workspaceId ?? "", 0, 1);
    await until(() => receivedAt("/hangs").length === 1);
    for (let i = 0; i < LEADS; i += 10)
      for (const { workspaceId } of [waiting, fast].flatMap((each) => each ?? []))
        await record(workspaceId, i, 10);
    await until(
      () => receivedAt("/waits").length === LEADS && receivedAt("/").length === LEADS,
      60_000,
    );
    // The local queue takes one batch at a time, so it did wait for the one that hangs: ten seconds.
    const [hungAt = 0, nextAt = 0] = ["/hangs", "/"].map((path) => receivedAt(path)[0]?.at);
    expect(nextAt - hungAt).toBeGreaterThan(5_000);
    const ids = (path: string) =>
      new Set(receivedAt(path).map(({ headers }) => headers["webhook-id"]));
    expect([ids("/waits").size, ids("/").size]).toEqual([LEADS, LEADS]);
    for (const { workspaceId } of [waiting, fast].flatMap((each) => each ?? []))
      await until(async () => {
        const { created, delivered, addsUp } = await PLATFORM.ledger({ workspaceId });
        return addsUp && created === LEADS && delivered === LEADS;
      });
  }, 90_000);
});
