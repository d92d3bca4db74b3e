import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generate } from "selfsigned";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Runtime } from "../../../scripts/shared/runtime.ts";
import { type Receiver, startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

let runtime: Runtime;
let trusted: Receiver;
let untrusted: Receiver;
const folder = mkdtempSync(join(tmpdir(), "authority-"));

/** A certificate for `localhost` from a new authority, and the authority's own certificate. */
async function makeCertificate(authorityName: string) {
  const authority = await generate([{ name: "commonName", value: authorityName }], {
    extensions: [
      { name: "basicConstraints", cA: true, critical: true },
      { name: "keyUsage", keyCertSign: true, cRLSign: true, critical: true },
    ],
  });
  const { cert, private: key } = await generate([{ name: "commonName", value: "localhost" }], {
    ca: { key: authority.private, cert: authority.cert },
    extensions: [
      { name: "basicConstraints", cA: false },
      { name: "subjectAltName", altNames: [{ type: 2, value: "localhost" }] },
    ],
  });
  return { authority: authority.cert, certificate: { cert, key } };
}

beforeAll(async () => {
  const known = await makeCertificate("Known authority");
  const unknown = await makeCertificate("Unknown authority");
  const file = join(folder, "authority.pem");
  writeFileSync(file, known.authority);
  // Read when the runtime's module is loaded.
  process.env.NODE_EXTRA_CA_CERTS = file;
  const { startRuntime } = await import("../../../scripts/shared/runtime.ts");
  runtime = await startRuntime();
  trusted = await startReceiver(() => 204, known.certificate);
  untrusted = await startReceiver(() => 204, unknown.certificate);
});

afterAll(async () => {
  await runtime.stop();
  await Promise.all([trusted.close(), untrusted.close()]);
  rmSync(folder, { recursive: true });
});

test("a delivery reaches a subscriber over HTTPS, but not one with an untrusted certificate", async () => {
  const { PLATFORM, DB } = runtime.env;
  const { workspaceId, subscribe } = await openWorkspace(runtime);
  for (const { url } of [trusted, untrusted]) await subscribe(url);
  const lead = { reference: "1", source: "widget" as const, agent: { reference: "a", name: "A" } };
  await PLATFORM.recordLeads({ workspaceId, leads: [lead] });
  const outcomes = async () => {
    const { results } = await DB.prepare(
      `SELECT s.url, d.state, d.last_outcome AS outcome FROM deliveries d
        JOIN subscriptions s ON s.id = d.subscription_id WHERE d.attempts = 1`,
    ).all();
    return results;
  };
  await until(async () => (await outcomes()).length === 2);
  expect(await outcomes()).toEqual(
    expect.arrayContaining([
      { url: trusted.url, state: "delivered", outcome: "answered" },
      { url: untrusted.url, state: "pending", outcome: "unreachable" },
    ]),
  );
  expect(trusted.posts).toHaveLength(1);
  expect(untrusted.posts).toHaveLength(0);
});
