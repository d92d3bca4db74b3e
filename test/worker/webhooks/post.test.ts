import { describe, expect, test, vi } from "vitest";
import { InvocationLimit } from "../../../src/webhooks/outcome.ts";
import { post } from "../../../src/webhooks/post.ts";
import { answered, receivedBy, subscriberUrl } from "../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

async function postTo(url: string, body = "{}") {
  const { outcome, response } = await post(url, body, { "webhook-id": "evt_1" }, NOW);
  await response?.body?.cancel();
  return outcome;
}

describe("a post", () => {
  test("is one POST with the unmodified body, its type, and the given headers, but no key of ours", async () => {
    const url = subscriberUrl();
    const body = '{"name":"Zoë “€” 🌻","n":1.0}';
    expect(await postTo(url, body)).toEqual(answered(200));
    const [received, ...others] = await receivedBy({ url });
    expect(others).toEqual([]);
    expect(received).toMatchObject({ url, body });
    expect(received?.headers).toMatchObject({
      "content-type": "application/json",
      "content-length": String(new TextEncoder().encode(body).length),
      "webhook-id": "evt_1",
    });
    for (const ours of ["authorization", "cookie"])
      expect(received?.headers).not.toHaveProperty(ours);
  });

  test.each([200, 204, 299, 301, 302, 303, 307, 308, 400, 410, 429, 503])(
    "that is answered with %i ends with that status, and no redirect is followed",
    async (status) => {
      const url = subscriberUrl(`status-${status}`);
      expect(await postTo(url)).toEqual(answered(status));
      expect(await receivedBy({ url })).toHaveLength(1);
      expect(await receivedBy({ url: "https://ok-elsewhere.example/" })).toEqual([]);
    },
  );

  test("does not wait for the response body", async () => {
    const startedAt = Date.now();
    expect(await postTo(subscriberUrl("endless"))).toEqual(answered(200));
    expect(Date.now() - startedAt).toBeLessThan(5_000);
  });

  test("whose connection fails has no status", async () => {
    vi.spyOn(globalThis, "fetch").mockRejectedValueOnce(new Error("Network connection lost."));
    expect(await postTo(subscriberUrl())).toEqual({ kind: "unreachable" });
  });

  test("that exceeds a limit of ours is not the subscriber's failure", async () => {
    const error = new Error("Too many subrequests by single Worker invocation.");
    vi.spyOn(globalThis, "fetch").mockRejectedValueOnce(error);
    await expect(postTo(subscriberUrl())).rejects.toThrow(InvocationLimit);
  });

  test("without an answer within 10 s is aborted", async () => {
    const startedAt = Date.now();
    // It would answer after 15 s.
    expect(await postTo(subscriberUrl("hang"))).toEqual({ kind: "timed_out" });
    expect(Date.now() - startedAt).toBeGreaterThan(9_900);
  });
});

describe("Retry-After of a response", () => {
  test.each([
    ["seconds", "120", 120],
    ["not a time", "0", 0],
    ["an HTTP date", "Mon, 05 Jan 2026 12:02:00 GMT", 120],
    ["an HTTP date in the past", "Mon, 05 Jan 2026 11:00:00 GMT", 0],
    ["nonsense", "soon", null],
    ["nothing", "", null],
    ["a number too large for any clock", "9".repeat(40), null],
  ])("is parsed if it is %s", async (_, value, seconds) => {
    const url = `${subscriberUrl("status-503")}&retry-after=${encodeURIComponent(value)}`;
    expect(await postTo(url)).toEqual(answered(503, seconds));
  });
});
