import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { mintSecret, signatureHeaders } from "../../../src/endpoints/signature.ts";
import { startProgram } from "../../node/support/process.ts";
import { freePort } from "../../node/support/server.ts";
import { until } from "../../support/until.ts";

/** The handler that the guide shows first. */
const [, HANDLER = ""] =
  /```js\n(.*?)```/s.exec(readFileSync(join(ROOT, "site/guides/webhooks.md"), "utf8")) ?? [];

test("the handler of the first webhook guide accepts a signed event and rejects a forged one", async () => {
  const port = await freePort();
  const secret = mintSecret();
  // Below the checkout, where Node finds the library.
  mkdirSync(join(ROOT, "dist"), { recursive: true });
  const folder = mkdtempSync(join(ROOT, "dist/handler-"));
  const file = join(folder, "handler.mjs");
  writeFileSync(file, HANDLER.replace(".listen(8080)", `.listen(${port})`));
  const program = startProgram([process.execPath, file], {
    env: { ...process.env, WEBHOOK_SECRET: secret },
  });
  try {
    const body = JSON.stringify({ id: "evt_1", type: "lead.created", data: { name: "Zoë" } });
    const send = async (headers: Record<string, string>) => {
      const url = `http://127.0.0.1:${port}/`;
      return (await fetch(url, { method: "POST", headers, body })).status;
    };
    await until(() =>
      send({}).then(
        () => true,
        () => false,
      ),
    );
    expect(await send(await signatureHeaders(secret, "evt_1", body, Date.now()))).toBe(204);
    expect(await send(await signatureHeaders(mintSecret(), "evt_1", body, Date.now()))).toBe(401);
  } finally {
    program.child.kill();
    rmSync(folder, { recursive: true });
  }
});
