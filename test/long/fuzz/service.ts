import { expect } from "vitest";
import type { Runtime } from "../../../scripts/shared/runtime.ts";
import type { ErrorCode, ErrorDetails } from "../../../src/contract/errors.ts";
import { type Answer, shoot } from "./client.ts";
import type { Contract } from "./document.ts";
import { expectEnvelope } from "./envelope.ts";
import type { Key, Model, Verdict, Window } from "./model.ts";

/** A request to the API, under `/v1/`. */
export interface Ask {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  path: string;
  body?: object;
}

const REFUSALS = ["invalid_api_key", "workspace_access_denied", "rate_limited"];

export type Service = ReturnType<typeof openService>;

/**
 * The running service, as the platform and clients at one address use it.
 *
 * @param reached how often each event of interest happened.
 */
export function openService(
  { url, env }: Runtime,
  contract: Contract,
  address: string,
  reached: Record<string, number>,
) {
  const note = (what: string) => {
    reached[what] = (reached[what] ?? 0) + 1;
  };

  /**
   * Sends a request `times` at once. Every response must match the document, and the gate's
   * verdicts must match the model. Returns the responses to admitted requests.
   */
  async function ask(model: Model, key: Key, { method, path, body }: Ask, times = 1) {
    const shot = {
      method,
      path: `/v1/${path}`,
      headers: {
        Authorization: `Bearer ${key.apiKey}`,
        "CF-Connecting-IP": address,
        ...(body ? { "Content-Type": "application/json" } : {}),
      },
      body: body ? JSON.stringify(body) : null,
    };
    const answers = await Promise.all(Array.from({ length: times }, () => shoot(url, shot)));
    const operation = contract.find(method, shot.path.split("?")[0] ?? "");
    if (!operation) throw new Error(`${method} ${path} is not in the document`);
    for (const answer of answers) {
      expectEnvelope(answer, shot.path);
      contract.expectAllowed(operation, answer, true);
      note(codeOf(answer) ?? String(answer.status));
    }
    const verdicts = answers.map(() => model.admit(key));
    expect(inOrder(answers.map(readVerdict))).toEqual(inOrder(verdicts));
    expectLater(key.revoked ? model.address : key.window, answers);
    return answers.filter((answer) => readVerdict(answer).refused === null);
  }

  return { platform: env.PLATFORM, note, ask };
}

/** Fails unless a response is exactly this refusal. */
export function expectRefusal(
  answer: Answer,
  status: number,
  code: ErrorCode,
  details: ErrorDetails = {},
): void {
  const body = { error: { code, message: expect.any(String), details } };
  expect({ status: answer.status, body: answer.body }).toEqual({ status, body });
}

function codeOf({ body }: Answer): string | undefined {
  return (body as { error?: { code: string } } | null)?.error?.code;
}

function readVerdict(answer: Answer): Verdict {
  const code = codeOf(answer);
  return {
    refused: REFUSALS.includes(code ?? "") ? (code as Verdict["refused"]) : null,
    limit: Number(answer.headers["x-ratelimit-limit"]),
    remaining: Number(answer.headers["x-ratelimit-remaining"]),
  };
}

/** Concurrent requests may be counted in any order. */
function inOrder(verdicts: Verdict[]): Verdict[] {
  // Of those that report nothing left, one took the last and the others are refused, in any order.
  return verdicts.toSorted(
    (a, b) => b.remaining - a.remaining || (a.refused ?? "").localeCompare(b.refused ?? ""),
  );
}

/** The end of a window approaches, and never moves away. */
function expectLater(window: Window, answers: Answer[]): void {
  const told = answers.map(({ headers }) => Number(headers["x-ratelimit-reset"]));
  expect(Math.max(...told)).toBeLessThanOrEqual(window.resetSeconds);
  window.resetSeconds = Math.min(...told);
}
