import { randomBytes } from "node:crypto";
import type { TestProject } from "vitest/node";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import build from "../../node/support/build.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { startControls } from "./controls.ts";
import { startSubscribers } from "./receiver.ts";

/** Where the tests find what they test. */
export interface Deployment {
  /** The base address, without `/v1`. */
  url: string;
  /** The key of `POST /platform/METHOD`, with which tests make workspaces, keys and records. */
  platformKey: string;
}

declare module "vitest" {
  interface ProvidedContext {
    deployment: Deployment;
    /** A deployment that serves the automations of the social family and no other route; null if there is none. */
    partialDeployment: Deployment | null;
    /** A key with which `GET /automations` answers 500; null if there is none. */
    failingKey: string | null;
    /** The server of controls.ts; null if there is none. */
    controls: string | null;
    /** Whether the deployment is that of `--url`. */
    isElsewhere: boolean;
    /** The base address of subscribers, as the service reaches it, over HTTPS. */
    subscribersUrl: string;
    /** Where tests read what subscribers got. */
    subscribersAddress: string;
  }
}

/**
 * Provides one deployment to all files: that of `npm run test:contract -- --url`, or ours, which it builds
 * and starts. Ours refuses the same URLs as in production. It believes that subscribers are at
 * `https://subscribers.example`, because the runtime sends everything that the Worker posts to this machine.
 */
export default async function setup({ provide }: TestProject) {
  const given = process.env;
  const subscribers = await startSubscribers(Number(given.CONTRACT_RECEIVER_PORT ?? 0));
  provide("subscribersAddress", subscribers.url);
  provide("isElsewhere", given.CONTRACT_URL !== undefined);
  if (given.CONTRACT_URL) {
    provide("deployment", deploymentAt(given.CONTRACT_URL));
    provide(
      "partialDeployment",
      given.CONTRACT_PARTIAL_URL ? deploymentAt(given.CONTRACT_PARTIAL_URL) : null,
    );
    provide("failingKey", given.CONTRACT_FAILING_KEY ?? null);
    provide("controls", given.CONTRACT_CONTROLS ?? null);
    provide("subscribersUrl", given.CONTRACT_RECEIVER ?? "");
    return () => subscribers.stop();
  }
  build();
  const platformKey = randomBytes(32).toString("base64");
  const emails: string[] = [];
  const start = async (vars: Record<string, string>) => {
    const runtime = await startRuntime({
      assets: true,
      onEmail: (email) => emails.push(email),
      outbound: subscribers.answer,
      vars: {
        PLATFORM_KEYS: `contract:${platformKey}`,
        ALLOW_LOCAL_WEBHOOKS: "",
        // Short, so that tests see a window end. On a busy machine, a few requests take seconds.
        QUOTA_WINDOW_SECONDS: 15,
        AUTH_FAILURES: 30,
        AUTH_FAILURE_WINDOW_SECONDS: 5,
        ...vars,
      },
    });
    return { runtime, deployment: { url: runtime.url.origin, platformKey } };
  };
  const [whole, partial] = await Promise.all([start({}), start({ SERVED_ROUTES: "automations" })]);
  provide("deployment", whole.deployment);
  provide("partialDeployment", partial.deployment);
  provide("failingKey", await damageWorkspace(whole.runtime));
  const controls = await startControls(whole.runtime, emails);
  provide("controls", controls.url);
  provide("subscribersUrl", "https://subscribers.example");
  return async () => {
    await Promise.all([whole.runtime.stop(), partial.runtime.stop()]);
    subscribers.stop();
    controls.stop();
  };
}

function deploymentAt(url: string): Deployment {
  return { url: url.replace(/\/$/, ""), platformKey: process.env.CONTRACT_PLATFORM_KEY ?? "" };
}

/** Makes a workspace with an automation that has an impossible time. @returns its key. */
async function damageWorkspace(runtime: Runtime): Promise<string> {
  const { workspaceId, apiKey, recordAutomations } = await openWorkspace(runtime);
  await recordAutomations(["damaged"]);
  await runtime.env.DB.prepare("UPDATE automations SET updated_at = 9e17 WHERE workspace_id = ?")
    .bind(workspaceId)
    .run();
  return apiKey;
}
