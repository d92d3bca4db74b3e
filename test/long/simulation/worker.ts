import { readdirSync, readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import type { Fault } from "../../faults/fault.ts";
import { findPlace } from "../../faults/place.ts";

/** The entry points of the Worker, loaded from a source tree: the shipped one, or one with a planted bug. */
export interface LoadedWorker {
  Platform: new (ctx: unknown, env: unknown) => Record<string, (input: unknown) => Promise<never>>;
  consume: typeof import("../../../src/dispatch/consumer.ts").consume;
  consumeEmails: typeof import("../../../src/email/send.ts").consumeEmails;
  sweep: typeof import("../../../src/sweep.ts").sweep;
  commit: typeof import("../../../src/db/client.ts").commit;
  connect: typeof import("../../../src/db/client.ts").connect;
  withoutRetries: typeof import("../../../src/db/client.ts").withoutRetries;
  insertSubscription: typeof import("../../../src/subscriptions/creation.ts").insertSubscription;
  loadDataKeyToWrite: typeof import("../../../src/workspaces/data-keys.ts").loadDataKeyToWrite;
  sealSecret: typeof import("../../../src/endpoints/secrets.ts").sealSecret;
  controlAutomation: typeof import("../../../src/recording/automation-changes.ts").controlAutomation;
  deleteSubscription: typeof import("../../../src/subscriptions/subscriptions.ts").deleteSubscription;
}

/** The modules, below `src`, that export them. */
const MODULES = [
  "platform/entrypoint.ts",
  "dispatch/consumer.ts",
  "email/send.ts",
  "sweep.ts",
  "db/client.ts",
  "subscriptions/creation.ts",
  "subscriptions/subscriptions.ts",
  "endpoints/secrets.ts",
  "workspaces/data-keys.ts",
  "recording/automation-changes.ts",
];

// Outside the Workers runtime, its base classes only have to store their arguments.
const STAND_IN = `class Base { constructor(ctx, env) { this.ctx = ctx; this.env = env; } }
  export { Base as WorkerEntrypoint, Base as DurableObject };`;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "cloudflare:workers"
      ? { url: `data:text/javascript,${encodeURIComponent(STAND_IN)}`, shortCircuit: true }
      : next(specifier, context),
});

/** Loads the Worker from the folder `src`. */
export async function loadWorker(src: string): Promise<LoadedWorker> {
  const load = (file: string) => import(new URL(file, pathToFileURL(`${src}/`)).href);
  return Object.assign({}, ...(await Promise.all(MODULES.map(load))));
}

/**
 * Loads the Worker from the folder `src` with a fault. It is bundled, which is quicker than to load each module again.
 *
 * @param outfile the bundle, which must be inside the checkout, so that packages are found.
 * @throws Error if there is no place for the fault.
 */
export async function loadFaulty(
  src: string,
  fault: Fault,
  outfile: string,
): Promise<LoadedWorker> {
  const place = findPlace(fault, readSources(src));
  if (typeof place === "number") throw new Error(`${place} places for ${fault.text}`);
  const faulty = join(src, place.file);
  const sound = readFileSync(faulty, "utf8");
  const contents = sound.slice(0, place.start) + place.replacement + sound.slice(place.end);
  const imports = MODULES.map((file, i) => `import * as m${i} from "./${file}";`);
  const names = MODULES.map((_, i) => `m${i}`);
  await build({
    stdin: {
      contents: `${imports.join("\n")}\nexport default Object.assign({}, ${names.join(", ")});`,
      resolveDir: src,
    },
    plugins: [
      {
        name: "fault",
        setup: ({ onLoad }) =>
          onLoad({ filter: /\.ts$/ }, ({ path }) =>
            path === faulty ? { contents, loader: "ts" } : undefined,
          ),
      },
    ],
    bundle: true,
    format: "esm",
    platform: "node",
    packages: "external",
    external: ["cloudflare:workers"],
    outfile,
  });
  return (await import(pathToFileURL(outfile).href)).default;
}

/** Reads the files below `src` with their texts. */
function readSources(src: string): Map<string, string> {
  const files = readdirSync(src, { recursive: true, encoding: "utf8" });
  const named = files.filter((file) => file.endsWith(".ts"));
  return new Map(named.map((file) => [file, readFileSync(join(src, file), "utf8")]));
}
