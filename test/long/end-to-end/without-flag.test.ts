import { expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { numbered, openWorkspace } from "../../node/support/workspace.ts";
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

async function open(path: string) {
  const workspace = await openWorkspace(runtime);
  await workspace.subscribe(`${receiver.url}${path}`);
  return workspace;
}

const receivedAt = (path: string) => receiver.posts.filter((post) => post.path === path);

test(`without ${FLAG}, every event is delivered, though a queue waits for each dispatch to end`, async () => {
  const hanging = await open("/hangs");
  const others = [await open("/waits"), await open("/")];
  await hanging.recordLeads(["1"]);
  await until(() => receivedAt("/hangs").length === 1);
  for (let from = 1; from <= LEADS; from += 10)
    for (const { recordLeads } of others) await recordLeads(numbered(10, from));
  const ids = (path: string) =>
    new Set(receivedAt(path).map(({ headers }) => headers["webhook-id"])).size;
  const arrived = () => ["/waits", "/"].map((path) => [receivedAt(path).length, ids(path)]);
  await until(() => receivedAt("/waits").length + receivedAt("/").length >= 2 * LEADS);
  expect(arrived()).toEqual(Array(2).fill([LEADS, LEADS]));
  // The local queue takes one batch at a time, so it did wait for the one that hangs: ten seconds.
  const [hungAt = 0, nextAt = 0] = ["/hangs", "/"].map((path) => receivedAt(path)[0]?.at);
  expect(nextAt - hungAt).toBeGreaterThan(5_000);
  for (const { workspaceId } of others)
    await until(async () => {
      const { created, delivered, addsUp } = await runtime.env.PLATFORM.ledger({ workspaceId });
      return addsUp && created === LEADS && delivered === LEADS;
    });
});
