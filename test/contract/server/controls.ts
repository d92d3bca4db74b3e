import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Runtime } from "../../../scripts/shared/runtime.ts";

const FOUR_DAYS_MS = 4 * 24 * 3_600_000;

/**
 * Starts a server for what takes days, and for what the service does not show over HTTP.
 *
 * - `POST /failing-for-days/WEBHOOK_ID`, of a subscription that has failed: it has done so for days, and often.
 * - `GET /emails/ADDRESS` returns the e-mails to an address.
 */
export async function startControls(runtime: Runtime, emails: readonly string[]) {
  const answer: RequestListener = async ({ url = "" }, response) => {
    const [, control, subject = ""] = url.split("/").map(decodeURIComponent);
    if (control === "failing-for-days") await ageFailures(runtime, subject);
    // The scheduled job announces problems, and the local runtime does not start it.
    else await runtime.scheduled();
    const found = emails.filter((email) => email.includes(`To: ${subject}\n`));
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(found));
  };
  const server = createServer((request, response) => {
    Promise.resolve(answer(request, response)).catch((error) =>
      response.writeHead(500).end(String(error)),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Makes the failures of a subscription older and more, while nothing is sent to it. */
async function ageFailures({ env }: Runtime, webhookId: string): Promise<void> {
  const age = env.DB.prepare(
    `UPDATE subscriptions SET failing_since = failing_since - ?1, failures = 9,
       circuits = (SELECT json_group_object(key, json_set(value, '$.since', failing_since - ?1))
         FROM json_each(circuits))
     WHERE id = ?2 AND failing_since IS NOT NULL AND leased_until = 0`,
  ).bind(FOUR_DAYS_MS, webhookId);
  for (let tried = 0; tried < 100; tried++) {
    const { meta } = await age.run();
    if (meta.changes > 0) return;
    await sleep(100);
  }
  throw new Error(`${webhookId} has not failed`);
}
