import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { bare, MARK, QUEUES, SECRETS, type Site, useSite } from "./deployment.ts";

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

  test("continues where each step failed", async () => {
    const { cloudflare } = site();
    cloudflare.addWorker("public-api");
    expect((await site().wrangler("deploy", "--env=")).code).toBe(1);
    // Wrangler creates them before Cloudflare refuses the version.
    expect(cloudflare.databases).toMatchObject([{ name: "public-api", jurisdiction: null }]);
    expect(cloudflare.queues).toHaveLength(QUEUES.length);

    /** Runs the command while changes of this kind fail, but for the first few. */
    const fail = async (outage: RegExp, outageAfter = 0) => {
      Object.assign(cloudflare, { outage, outageAfter });
      const { code, output } = await site().deploy();
      cloudflare.outage = null;
      expect(code).toBe(1);
      return output;
    };
    expect(await fail(/^DELETE .queues/)).toContain("could not be set up: nothing was deployed");
    expect(await fail(/^POST .queues$/, 1)).not.toContain("paid plan");
    expect(await fail(/^DELETE .d1.database/)).toContain("Service unavailable");
    expect(await fail(/^POST .d1.database$/)).toContain("Service unavailable");
    expect(await fail(/^POST .d1.database.*query$/, 3)).toContain("could not be migrated");
    // The Worker throws.
    site().replaced["/health"] = (_, response) => bare(response).writeHead(500).end();
    expect(await fail(/^GET .never$/)).toContain(
      "The new version serves, but fails its test:\n  GET /health responds with 500\n",
    );
    delete site().replaced["/health"];
    expect(cloudflare.databases).toMatchObject([{ name: "public-api", jurisdiction: "eu" }]);
    const settings = { message_retention_period: 14 * 24 * 60 * 60 };
    expect(cloudflare.queues).toMatchObject(QUEUES.map(() => ({ jurisdiction: "eu", settings })));

    // The first share of the traffic, which is none, and then all of it.
    for (const outageAfter of [0, 1])
      expect(await fail(/^POST .*deployments$/, outageAfter)).toContain("gets no traffic");
    cloudflare.changes.length = 0;
    expect((await site().deploy()).code).toBe(0);
    const { versions, deployments } = cloudflare.workers.get("public-api") ?? {};
    expect(deployments?.[0]).toEqual({ [String(versions?.at(-1)?.id)]: 100 });
    expect(cloudflare.changes).not.toContainEqual(expect.stringMatching(/^PATCH .queues/));
  });
});
