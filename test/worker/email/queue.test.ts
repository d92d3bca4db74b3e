import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { AGREED_SUBSCRIPTIONS_MAX } from "../../../src/contract/limits.ts";
import { enqueueEmails } from "../../../src/email/queue.ts";

test("E-mails about very many subscriptions are passed in batches that the queue accepts", async () => {
  const batches: string[] = [];
  const sendBatch = async (messages: MessageSendRequest<unknown>[]) =>
    void batches.push(JSON.stringify(messages));
  const subscriptionIds = Array.from({ length: AGREED_SUBSCRIPTIONS_MAX }, () =>
    randomId("webhook"),
  );
  const emails = Array.from({ length: 100 }, (_, i) => ({
    workspaceId: "wks_1",
    kind: "failing" as const,
    subscriptionIds,
    isReminder: false,
    to: `${i}@example.com`,
  }));
  await enqueueEmails({ ...env, EMAILS: { sendBatch } as unknown as Queue }, emails);
  expect(batches.flatMap((batch) => JSON.parse(batch))).toEqual(emails.map((body) => ({ body })));
  for (const batch of batches) expect(batch.length).toBeLessThan(256_000);
});
