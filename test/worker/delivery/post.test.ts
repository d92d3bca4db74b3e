import { describe, expect, test, vi } from "vitest";
import { post } from "../../../src/delivery/post.ts";
import { answered, receivedBy, subscriberUrl } from "../../support/deliveries.ts";
import { shortenTimers } from "../../support/timers.ts";

/** A wait until a full second is rounded up. */
const NOW = Date.UTC(2026, 0, 5, 12, 0, 0, 1);

async function postTo(url: string) {
  const { outcome, response } = await post(url, "{}", { "webhook-id": "evt_1" }, NOW);
  await response?.body?.cancel();
  return outcome;
}

describe("a request", () => {
  test.each([200, 204, 299, 301, 302, 303, 307, 308, 400, 410, 429, 503, 519, 531])(
    "that is answered with %i ends with that status, and no redirect is followed",
    async (status) => {
      const url = subscriberUrl(`status-${status}`);
      expect(await postTo(url)).toEqual(answered(status));
      expect(await receivedBy({ url })).toHaveLength(1);
      const elsewhere = `https://ok-elsewhere-${new URL(url).hostname}/`;
      expect(await receivedBy({ url: elsewhere })).toEqual([]);
    },
  );

  test.each([520, 526, 530])(
    "that Cloudflare answers with %i, in the endpoint's place, did not reach it",
    async (status) => {
      const url = subscriberUrl(`status-${status}`);
      expect(await postTo(url)).toEqual({ kind: "unreachable", status });
    },
  );

  test.each([
    [403, "error code: 1003"],
    [403, "error code: 1020\n"],
    [403, "error code: 1106"],
    [404, "error code: 1042"],
    [409, "error code: 1001"],
  ])("that Cloudflare answers with %i and %j did not reach the endpoint", async (status, says) => {
    const url = `${subscriberUrl(`says-${status}`)}&${new URLSearchParams({ says })}`;
    expect(await postTo(url)).toEqual({ kind: "unreachable", status });
  });

  test.each([
    [403, "error code: 7"],
    [403, "Our firewall blocked you. error code: 1003"],
    [500, "error code: 1003"],
  ])("that the endpoint itself answers with %i and %j reached it", async (status, says) => {
    const url = `${subscriberUrl(`says-${status}`)}&${new URLSearchParams({ says })}`;
    expect(await postTo(url)).toEqual(answered(status));
  });

  test("that gets 403 and an endless body waits 250 ms for Cloudflare's text", async () => {
    const timers = shortenTimers(250);
    expect(await postTo(subscriberUrl("endless-403"))).toEqual(answered(403));
    expect(timers).toHaveBeenCalledWith(expect.any(Function), 250);
  });

  test("whose connection fails has no status", async () => {
    const fetch = vi.spyOn(globalThis, "fetch");
    fetch.mockRejectedValueOnce(new Error("Network connection lost."));
    expect(await postTo(subscriberUrl())).toEqual({ kind: "unreachable", status: null });
    fetch.mockRejectedValueOnce(new Error("certificate has expired"));
    const { clue } = await post(subscriberUrl(), "{}", {}, NOW);
    expect(clue).toEqual({ error: "certificate has expired" });
    fetch.mockRejectedValueOnce(new Error("x".repeat(300)));
    expect((await post(subscriberUrl(), "{}", {}, NOW)).clue).toEqual({ error: "x".repeat(200) });
    const limit = "Too many subrequests by single Worker invocation.";
    fetch.mockRejectedValueOnce(new Error(limit));
    await expect(postTo(subscriberUrl())).rejects.toThrow(limit);
  });

  test.each([
    ["https://www.example.com/api/hook", "https://www.example.com/api/hook"],
    ["/api/hook?a=1", "https://a.example/api/hook?a=1"],
    ["javascript:alert(1)", undefined],
    [`https://www.example.com/${"x".repeat(2_048)}`, undefined],
    ["http://[", undefined],
  ])("that is redirected to %s says where to", async (named, location) => {
    const redirect = new Response(null, { status: 308, headers: { Location: named } });
    vi.spyOn(globalThis, "fetch").mockResolvedValueOnce(redirect);
    const { clue } = await post("https://a.example/in", "{}", {}, NOW);
    expect(clue?.location).toBe(location);
  });

  test.each([200, 201, 422])("with a response of %i is not redirected", async (status) => {
    const response = new Response(null, { status, headers: { Location: "/in/1" } });
    vi.spyOn(globalThis, "fetch").mockResolvedValueOnce(response);
    expect((await post("https://a.example/in", "{}", {}, NOW)).clue).toBeNull();
  });

  test("without a response within 10 s is aborted", async () => {
    shortenTimers(10_000);
    // It would answer after 3 s.
    expect(await postTo(subscriberUrl("hang"))).toEqual({ kind: "timed_out" });
  });

  test.each([
    ["seconds", "120", 120],
    ["not a time", "0", 0],
    ["an HTTP date", "Mon, 05 Jan 2026 12:02:00 GMT", 120],
    ["an HTTP date in the past", "Mon, 05 Jan 2026 11:00:00 GMT", 0],
    ["a date longer than any", `Mon, 05 Jan 2026 12:02:00 GMT (${"x".repeat(100)})`, null],
    ["nonsense", "soon", null],
    ["nothing", "", null],
    ["a number too large for any clock", "9".repeat(400), Number.POSITIVE_INFINITY],
  ])("parses the Retry-After of its response if it is %s", async (_, value, seconds) => {
    const url = `${subscriberUrl("status-503")}&retry-after=${encodeURIComponent(value)}`;
    expect(await postTo(url)).toEqual(answered(503, seconds));
  });
});
