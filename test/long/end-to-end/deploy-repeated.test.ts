import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { MARK, SECRETS, type Site, useSite } from "./deployment.ts";

// Wrangler takes seconds to start, and longer on a busy machine.
vi.setConfig({ testTimeout: 600_000 });

const TERMINAL = { CI: "" };

/** The secrets of the newest version of the Worker, without the mark. */
function deployedSecrets({ cloudflare }: Site): Record<string, string> {
  const bindings = cloudflare.workers.get("public-api")?.versions.at(-1)?.bindings ?? [];
  const secrets = bindings.filter(({ type, name }) => type === "secret_text" && name !== MARK);
  return Object.fromEntries(secrets.map(({ name, text }) => [name, text ?? ""]));
}

describe("npm run deploy, repeated after a failure,", () => {
  const site = useSite("test");

  test("deploys the secrets that the failed deployment copied to a file", async () => {
    const { cloudflare, folder } = site();
    const copies = () => readdirSync(folder).filter((name) => /^public-api\..*\.txt$/.test(name));
    cloudflare.outage = /^POST .queues$/;
    expect((await site().deploy(TERMINAL)).code).toBe(1);
    const [copy = ""] = copies();
    const kept = readFileSync(join(folder, copy), "utf8");
    cloudflare.outage = null;

    const { code, output } = await site().deploy(TERMINAL);
    expect(output).toContain(`found in ${join(folder, copy)}`);
    expect(code).toBe(0);
    expect(copies()).toEqual([copy]);
    expect(readFileSync(join(folder, copy), "utf8")).toBe(kept);
    const lines = Object.entries(deployedSecrets(site())).map(
      ([name, value]) => `${name}="${value}"`,
    );
    expect(lines.toSorted()).toEqual(kept.trimEnd().split("\n").toSorted());
    expect(lines).toHaveLength(Object.keys(SECRETS).length);
  });
});
