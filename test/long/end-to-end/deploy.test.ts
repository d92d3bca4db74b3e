import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { until } from "../../support/until.ts";
import { BUILD_ENVIRONMENT, bare, MARK, QUEUES, SECRETS, useSite } from "./deployment.ts";

// Wrangler takes seconds to start, and longer on a busy machine.
vi.setConfig({ testTimeout: 600_000 });

const K2 = `k2:${Buffer.alloc(32, "2").toString("base64")}`;
const PLATFORM_KEYS = `crm:${Buffer.alloc(32, "x").toString("base64")}`;
const COMMIT = execFileSync("git", ["rev-parse", "HEAD"], { cwd: ROOT, encoding: "utf8" });
const ROTATED = `${K2},${SECRETS.ENCRYPTION_KEYS}`;

describe("npm run deploy, one version after the other,", () => {
  const site = useSite("file");
  const worker = () => {
    const found = site().cloudflare.workers.get("public-api");
    if (!found) throw new Error("there is no Worker");
    return found;
  };
  const newest = () => {
    const version = worker().versions.at(-1);
    if (!version) throw new Error("there is no version");
    return version;
  };
  const secrets = () =>
    Object.fromEntries(
      newest().bindings.flatMap(({ type, name, text }) =>
        type === "secret_text" ? [[name, text ?? ""]] : [],
      ),
    );

  test("names the step that failed, and that nothing was deployed", async () => {
    const { cloudflare } = site();
    /** Runs the command while changes of this kind fail, but for the first few. */
    const fail = async (outage: RegExp, outageAfter = 0) => {
      Object.assign(cloudflare, { outage, outageAfter });
      const { code, output } = await site().deploy();
      cloudflare.outage = null;
      expect(code).toBe(1);
      return output;
    };
    expect(await fail(/^POST .queues$/, 1)).toContain("Service unavailable");
    expect(await fail(/^POST .d1.database$/)).toContain("Service unavailable");
    expect(await fail(/^POST .d1.database.*query$/, 3)).toContain("could not be migrated");
    expect(cloudflare.workers.size).toBe(0);
  });

  test("then continues: it has everything in its jurisdiction, the tables, and the secrets", async () => {
    const { cloudflare } = site();
    const { code, output } = await site().deploy();
    expect(output).toContain(`Deployed: ${site().address}. It passes its test.`);
    expect(output).toContain("Continue with docs/admin.md, Day one");
    expect(code).toBe(0);
    expect(cloudflare.databases).toMatchObject([{ name: "public-api", jurisdiction: "eu" }]);
    expect(worker().subdomain).toEqual({ enabled: true, previews_enabled: false });
    expect(cloudflare.queues).toMatchObject(
      QUEUES.map((queue_name) => ({ queue_name, jurisdiction: "eu" })),
    );
    const [{ content } = {}] = cloudflare.databases;
    expect(content?.prepare("SELECT count(*) AS rows FROM workspaces").get()).toEqual({ rows: 0 });
    expect(secrets()).toEqual({ ...SECRETS, [MARK]: "true" });
    for (const [, key = "true"] of Object.values(secrets()).map((secret) => secret.split(":")))
      if (key !== "true") expect(output).not.toContain(key);
    // The file with the secrets is gone.
    expect(readdirSync(site().folder).filter((name) => name.startsWith("deploy-"))).toEqual([]);
  });

  test("keeps the secrets out of the environment of wrangler, and of the build that it runs", () => {
    const environment = readFileSync(join(site().folder, BUILD_ENVIRONMENT), "utf8");
    expect(environment).toContain("CLOUDFLARE_API_TOKEN=");
    expect(environment).not.toContain(SECRETS.ENCRYPTION_KEYS);
  });

  test("gives a version that is less healthy than the one before it no traffic", async () => {
    const { id: former } = newest();
    site().replaced["/health"] = ({ headers }, response) =>
      "cloudflare-workers-version-overrides" in headers
        ? response.writeHead(503).end()
        : response.end('{ "status": "ok" }');
    const { code, output } = await site().deploy({ PLATFORM_KEYS: `old:${K2.slice(3)}` });
    delete site().replaced["/health"];
    expect(output).toContain(
      `The new version fails its test, and gets no traffic; ${former} serves:\n  GET /health responds with 503`,
    );
    const { id } = newest();
    expect(output).toContain(`\n  ${id} stays in the deployment with 0%. Fix this, and run`);
    expect([code, worker().deployments[0]]).toEqual([1, { [former]: 100, [id]: 0 }]);
  });

  test("gives a version no traffic while Cloudflare's API fails", async () => {
    const { id: former } = newest();
    // After the first share of the traffic, which is none.
    Object.assign(site().cloudflare, { outage: /^POST .*deployments$/, outageAfter: 1 });
    const { code, output } = await site().deploy({});
    site().cloudflare.outage = null;
    const serving = Object.entries(worker().deployments[0] ?? {}).find(([, share]) => share > 0);
    expect(output).toContain(`${newest().id} gets no traffic; ${serving?.[0]} serves:`);
    expect([code, newest().id === former]).toEqual([1, false]);
  });

  test("tests a later version before it has traffic, and rotates secrets, while the service is unhealthy", async () => {
    const { cloudflare, overrides, replaced } = site();
    const before = secrets();
    // The latest version does not serve, and the one that does throws.
    const [served = ""] = Object.keys(worker().deployments[0] ?? {});
    expect(served).not.toBe(newest().id);
    replaced["/health"] = ({ headers }, response) =>
      "cloudflare-workers-version-overrides" in headers
        ? response.writeHead(503).end()
        : bare(response).writeHead(500).end();
    cloudflare.changes.length = 0;
    overrides.length = 0;
    const { code, output } = await site().deploy({ ENCRYPTION_KEYS: ROTATED, PLATFORM_KEYS });
    delete replaced["/health"];
    const { id, annotations } = newest();
    // It has all migrations.
    expect(output).not.toContain("Migrating the database");
    expect(output).toContain("It passes its test.");
    expect(code).toBe(0);
    const [, wayBack] = /^Back to the version before: npx wrangler (.+)$/m.exec(output) ?? [];
    expect(wayBack).toBe(
      `rollback ${served} --config=${join(site().folder, "wrangler.toml")} --env=`,
    );
    expect(secrets()).toEqual({ ...before, ENCRYPTION_KEYS: ROTATED, PLATFORM_KEYS });
    expect(annotations).toEqual({
      "workers/tag": expect.stringMatching(new RegExp(`^${COMMIT.slice(0, 12)}(-changed)?$`)),
    });
    expect(new Set(overrides)).toEqual(new Set([`public-api="${id}"`]));
    const [latest, tested] = worker().deployments;
    expect([tested, latest]).toEqual([{ [served]: 100, [id]: 0 }, { [id]: 100 }]);
    const order = cloudflare.changes.map((change) => change.replace(/.*\//, ""));
    expect(order.filter((word) => /^(versions|deployments|schedules)$/.test(word))).toEqual([
      ...["versions", "deployments", "deployments", "schedules"],
    ]);
  });

  test("says how to see which version serves if Cloudflare's API fails after the upload", async () => {
    site().cloudflare.outage = /^PUT .*schedules$/;
    const { code, output } = await site().deploy({}, "--at-once");
    site().cloudflare.outage = null;
    expect(output).toMatch(
      /^Wrangler did not finish: run the command again\. .* npx wrangler deployments list --config=\S+ --env=$/m,
    );
    expect(code).toBe(1);
  });

  test("with --at-once, fails if the version that has the traffic fails its test", async () => {
    const { replaced } = site();
    const [former = ""] = Object.keys(worker().deployments[0] ?? {});
    replaced["/health"] = (_, response) => bare(response).writeHead(500).end();
    const { code, output } = await site().deploy({}, "--at-once");
    delete replaced["/health"];
    expect(output).toContain("The new version serves, but fails its test:\n  GET /health responds");
    expect(output).toContain(`If this lasts, go back: npx wrangler rollback ${former} `);
    expect([code, worker().deployments[0]]).toEqual([1, { [newest().id]: 100 }]);
  });

  test("leaves no file with the secrets if it is ended during the deployment", async () => {
    const { folder, cloudflare } = site();
    const { length } = worker().versions;
    // Otherwise, the new version may be there before the command is ended.
    cloudflare.silence = /^PUT .workers.scripts.public-api$/;
    const { child, ended } = site().start(SECRETS, "--at-once");
    const filesHere = () => readdirSync(folder).filter((name) => name.startsWith("deploy-"));
    const isWritten = () =>
      filesHere().some((name) => existsSync(join(folder, name, "secrets.json")));
    await until(isWritten, 300_000);
    child.kill("SIGTERM");
    const { code } = await ended;
    cloudflare.silence = null;
    expect(code).toBe(1);
    expect([filesHere(), worker().versions.length]).toEqual([[], length]);
  });

  test("--env staging deploys another Worker, with the secrets that a failed run has copied", async () => {
    const { address, folder, cloudflare, configure } = site();
    const deployStaging = () => site().deploy({ CI: "" }, "--env", "staging");
    cloudflare.outage = /^POST .queues$/;
    expect((await deployStaging()).code).toBe(1);
    cloudflare.outage = null;
    const copy = join(folder, "public-api-staging.secrets.txt");
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    const copied = readFileSync(copy, "utf8");

    configure(`PORTAL_ORIGIN = "${address}"`, 'PORTAL_ORIGIN = ""');
    const { code, output } = await deployStaging();
    configure('PORTAL_ORIGIN = ""', `PORTAL_ORIGIN = "${address}"`);
    expect(output).toContain(`in ${copy}`);
    // On day one, it only has an address under workers.dev, which may not serve it yet.
    expect(output).toContain("Deployed, and not tested: wrangler.toml sets no PORTAL_ORIGIN.");
    expect(code).toBe(0);
    expect([...cloudflare.workers.keys()]).toEqual(["public-api", "public-api-staging"]);
    expect(cloudflare.databases.slice(1)).toMatchObject([
      { name: "public-api-staging", jurisdiction: "eu" },
    ]);
    expect(cloudflare.queues.slice(QUEUES.length).map(({ queue_name }) => queue_name)).toEqual(
      QUEUES.map((name) => `${name}-staging`),
    );
    const [version] = cloudflare.workers.get("public-api-staging")?.versions ?? [];
    const lines = Object.keys(SECRETS).map((name) => {
      const secret = version?.bindings.find((binding) => binding.name === name)?.text ?? "";
      expect(output).not.toContain(secret.split(":")[1]);
      return `${name}="${secret}"\n`;
    });
    expect(readFileSync(copy, "utf8")).toBe(copied);
    expect(lines.join("")).toBe(copied);
  });
});
