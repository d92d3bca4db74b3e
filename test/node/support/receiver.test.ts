import { connect } from "node:net";
import { expect, test } from "vitest";
import { until } from "../../support/until.ts";
import { startReceiver } from "./receiver.ts";

test("a post whose sender dies before the end of its body does not count, and the receiver continues", async () => {
  const receiver = await startReceiver();
  const { hostname, port } = new URL(receiver.url);
  const sender = connect(Number(port), hostname);
  let isGone = false;
  sender.on("close", () => {
    isGone = true;
  });
  const head = "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n";
  sender.write(`${head}half`, () => sender.destroy());
  await until(() => isGone);
  const { status } = await fetch(receiver.url, { method: "POST", body: "whole" });
  expect(status).toBe(204);
  expect(receiver.posts.map(({ body }) => body.toString())).toEqual(["whole"]);
  await receiver.close();
});
