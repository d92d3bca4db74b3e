import { describe, expect, test, vi } from "vitest";
import { useSite } from "./deployment.ts";

// Wrangler takes seconds to start, and longer on a busy machine.
vi.setConfig({ testTimeout: 600_000 });

describe("npm run deploy, on day one,", () => {
  const site = useSite("file");
  const worker = () => site().cloudflare.workers.get("public-api");

  test("tests the address under workers.dev, and asks for PORTAL_ORIGIN", async () => {
    const { address, configure } = site();
    configure(`PORTAL_ORIGIN = "${address}"`, 'PORTAL_ORIGIN = ""');
    const { code, output } = await site().deploy();
    const [, deployed = ""] = /^Deployed: (.+)\.$/m.exec(output) ?? [];
    expect(deployed).toMatch(/^https:\/\/public-api\.account-x+\.workers\.dev$/);
    expect(output).toContain("GET /health gets no answer");
    expect(output).toContain("Set PORTAL_ORIGIN in wrangler.toml");
    expect(code).toBe(0);
  });

  test("takes a hostname over from what responds there", async () => {
    const { address, cloudflare, configure } = site();
    const { hostname } = new URL(address);
    cloudflare.domains.push({ id: "d1", hostname, service: "another-api" });
    cloudflare.records.push(hostname);
    configure('PORTAL_ORIGIN = ""', `PORTAL_ORIGIN = "${address}"`);
    configure(
      "workers_dev = true\npreview_urls",
      `routes = [{ pattern = "${hostname}", custom_domain = true }]\nworkers_dev = false\npreview_urls`,
    );
    site().replaced["/health"] = (_, response) => response.writeHead(503).end();
    const { code, output } = await site().deploy({});
    expect(output).toContain(`The Worker does not serve ${address} yet`);
    expect(output).toContain(
      "The new version serves, but fails its test:\n  GET /health responds with 503\n",
    );
    expect(code).toBe(1);
    expect(cloudflare.domains).toEqual([{ id: "d1", hostname, service: "public-api" }]);
    // It has no other address.
    expect(worker()?.subdomain).toEqual({ enabled: false, previews_enabled: false });
  });
});
