import { join } from "node:path";
import { checkReceiver, type Finding } from "../../scripts/check-receiver/checks.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { signatureFault } from "../../scripts/shared/receiver.ts";
import { mintSecret } from "../../src/endpoints/signature.ts";
import { runProgram } from "../node/support/process.ts";
import type { Post } from "../node/support/receiver.ts";

/** The secret of the receivers, and of the checker by default. */
export const SECRET = mintSecret();

/** The command in the checkout. */
export const CHECKER = join(ROOT, "scripts/check-receiver/check-receiver.ts");

/** Runs the command. @returns its output and exit code, and the checks by result. */
export async function check(...args: string[]) {
  return checkWith(SECRET, [CHECKER, ...args]);
}

/** Checks a receiver in this process, which is quicker than the command. */
export async function checkHere(url: string, secret = SECRET): Promise<Finding[]> {
  const findings: Finding[] = [];
  for await (const finding of checkReceiver(url, secret)) findings.push(finding);
  return findings;
}

/** Runs another file, with another secret in the environment. */
export async function checkWith(secret: string, args: string[]) {
  const env = { ...process.env, WEBHOOK_SECRET: secret };
  const end = await runProgram([process.execPath, ...args], { env });
  const rows = end.stdout.split("\n").map((line) => line.split(/ {2,}/));
  const checks = (result: string) =>
    rows.filter((row) => row.length === 5 && row[4] === result).map(([check]) => check);
  return { ...end, checks };
}

/** Whether a delivery is signed with `SECRET`, as seen at `now`. */
export function isGenuine(post: Post, now = Date.now()): boolean {
  return signatureFault(SECRET, post.headers["x-service-signature"], post.body, now) === null;
}
