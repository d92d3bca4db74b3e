// biome-ignore-all lint/suspicious/noTemplateCurlyInString: quoted from the sources
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");
mkdirSync(join(ROOT, "dist"), { recursive: true });
const SCRATCH = mkdtempSync(join(ROOT, "dist/simulation-"));

afterAll(() => rmSync(SCRATCH, { recursive: true }));

function simulate(...args: string[]) {
  const script = join(ROOT, "scripts/simulate.ts");
  const { status, stdout, stderr } = spawnSync("node", [script, ...args], {
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  return { status, output: stdout + stderr };
}

/** A copy of the sources with each of `edits` made once. */
function plant(name: string, file: string, edits: [string, string][]): string {
  const src = join(SCRATCH, name, "src");
  cpSync(join(ROOT, "src"), src, { recursive: true });
  let text = readFileSync(join(src, file), "utf8");
  for (const [found, planted] of edits) {
    expect(text).toContain(found);
    text = text.replaceAll(found, planted);
  }
  writeFileSync(join(src, file), text);
  return src;
}

describe("the simulation", () => {
  test("finds no violated invariant in 24 worlds", () => {
    const { status, output } = simulate("--seeds", "24", "--from", "1", "--jobs", "2");
    expect(output).toContain("24 seeds, 0 violations");
    // Every error of the table, before the commit and after it.
    expect(output).toMatch(/ (\d+) of \1 faults of D1,/);
    expect(status).toBe(0);
  }, 600_000);

  test("replays a seed exactly", () => {
    const args = ["--seeds", "1", "--from", "8", "--verbose", "--jobs", "1"];
    const [first, second] = [simulate(...args), simulate(...args)].map(({ output }) =>
      output.replace(/ in [\d.]+ s$/m, ""),
    );
    expect(first).toBe(second);
    expect(first?.split("\n").length).toBeGreaterThan(100);
  });

  // Each rule, with the code that enforces it removed, what then fails, and the first world in which it
  // does, if it is known. When other code changes, it may be another world: sixty are tried.
  const bugs: [
    rule: string,
    file: string,
    edits: [string, string][],
    violation: RegExp,
    from?: number,
  ][] = [
    [
      "one dispatch at a time posts to a subscription",
      "webhooks/dispatch/lease.ts",
      [["IS_FREE = sql`(${", "IS_FREE = sql`(1 OR ${"]],
      /posts under way at once|after it was|several posts/,
      2,
    ],
    [
      "an outcome is recorded once",
      "webhooks/dispatch/settle.ts",
      [
        [
          "AND ${deliveries.state} = 'pending' AND ${deliveries.attempts} = o.value->>'attempts'",
          "",
        ],
      ],
      /attempts, more than were made|after it was/,
      1,
    ],
    [
      "what the queues lose is woken",
      "sweep.ts",
      [["wakeOverdue(placement, env, now),", "Promise.resolve(),"]],
      /is overdue by more than an hour/,
      1,
    ],
    [
      "concurrent posts are earned",
      "webhooks/dispatch/pipeline.ts",
      [["this.#inFlight.size < this.subscription.postsAtOnce &&", ""]],
      /posts under way at once/,
      1,
    ],
    [
      "a failing subscription is probed",
      "webhooks/dispatch/policy.ts",
      [["endedAt + waitMs(rungSeconds, outcome, random);", "endedAt;"]],
      /fails always, and was posted to/,
      2,
    ],
    [
      "slow subscriptions have their own queue",
      "webhooks/dispatch/wake.ts",
      [["slow: env.REDELIVERIES", "slow: env.DELIVERIES"]],
      /answers immediately, and (waited|got)/,
      128,
    ],
    [
      "what is withdrawn is not posted",
      "webhooks/dispatch/pipeline.ts",
      [
        [
          "if (this.isReleasing || !found.mayPost || isVoid || isLost)",
          "if (this.isReleasing || isLost)",
        ],
      ],
      /ms after it was withdrawn|after it was cancelled/,
      112,
    ],
    [
      "a subscription is disabled after 72 hours of failures",
      "webhooks/dispatch/pipeline.ts",
      [["isFailing && failingSince <= now - DISABLE_AFTER_MS", "isFailing"]],
      /was disabled too early/,
      1,
    ],
    [
      "an event is owed to active subscriptions only",
      "webhooks/outbox.ts",
      [["const isOwed = sql`${isListing} AND ${IS_ACTIVE}`;", "const isOwed = isListing;"]],
      /is owed to .*, not to/,
      1,
    ],
    [
      "what a call leaves of a range is redelivered",
      "sweep.ts",
      [["redeliverRanges(placement, env, now, hasTime),", "Promise.resolve(),"]],
      /is still being redelivered/,
      26,
    ],
    [
      "a subscription is released in the round trip that finds nothing",
      "webhooks/dispatch/settle.ts",
      [["iif(c.value->>'release' AND", "iif(0 AND"]],
      /answers immediately, and (waited|got)|rows were written for/,
      1,
    ],
    [
      "what another clock made due in the future is woken again",
      "webhooks/dispatch/consumer.ts",
      [["wasLeased || waitMs <= EARLY_WAKE_MS ? waitMs : null", "waitMs === 0 ? 0 : null"]],
      /answers immediately, and (waited|got)/,
      5,
    ],
    [
      "one claim covers many deliveries",
      "webhooks/dispatch/dispatch.ts",
      [["? share : Math.min(share, CLAIM_SLOW_MAX)", "? 1 : 1"]],
      /rows were written for/,
      3,
    ],
  ];

  test.each(bugs)(
    "detects it if it does not hold that %s",
    (rule, file, edits, violation, from) => {
      const worlds = from
        ? ["--seeds", "60", "--from", `${from}`, "--jobs", "1"]
        : ["--seeds", "120"];
      const src = plant(rule.replaceAll(/\W+/g, "-"), file, edits);
      const { status, output } = simulate(...worlds, "--src", src);
      expect(output).toMatch(new RegExp(`seed \\d+ failed: .*(${violation.source})`));
      expect(status).toBe(1);
    },
    600_000,
  );
});
