/**
 * Hands the session over to other tabs of this browser, so that a link that is opened in a new tab works.
 * The token goes from tab to tab through a BroadcastChannel, which only pages of this origin can use, and
 * which stores nothing. In `localStorage`, it would stay on the disk after the last tab was closed, and the next
 * person at a shared computer would have the session.
 */

/** How long a tab waits for the first response of the others, which may be asleep. */
const FIRST_ANSWER_MS = 1_000;
/** How long a tab then waits for further responses. */
const FURTHER_ANSWERS_MS = 50;

type Message =
  | { kind: "ask"; id: string }
  | { kind: "answer"; id: string; token: string; usedAt: number }
  | { kind: "opened"; token: string };

const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("portal-session") : null;

/** When the reader last saw this tab, in Unix milliseconds. */
let usedAt = Date.now();
document.addEventListener("visibilitychange", () => {
  usedAt = Date.now();
});

function send(message: Message): void {
  channel?.postMessage(message);
}

/** Asks the other tabs for their session. @returns that of the tab that was used last; null without any. */
export function askOtherTabs(): Promise<string | null> {
  if (!channel) return Promise.resolve(null);
  const id = String(Math.random());
  return new Promise((resolve) => {
    let best: { token: string; usedAt: number } | null = null;
    const end = () => {
      channel.removeEventListener("message", listen);
      resolve(best?.token ?? null);
    };
    const listen = ({ data }: MessageEvent<Message>) => {
      if (data.kind !== "answer" || data.id !== id) return;
      if (best === null) setTimeout(end, FURTHER_ANSWERS_MS);
      if (best === null || data.usedAt > best.usedAt) best = data;
    };
    channel.addEventListener("message", listen);
    setTimeout(end, FIRST_ANSWER_MS);
    send({ kind: "ask", id });
  });
}

/** Tells the other tabs that a session was opened: one that has none can use it. */
export function tellOtherTabs(token: string): void {
  send({ kind: "opened", token });
}

/**
 * Responds to other tabs that request a session.
 *
 * @param read the session of this tab; null without one.
 * @param onOpened receives the session that another tab has opened.
 */
export function offerToOtherTabs(
  read: () => string | null,
  onOpened: (token: string) => void,
): void {
  channel?.addEventListener("message", ({ data }: MessageEvent<Message>) => {
    const token = read();
    const isVisible = document.visibilityState === "visible";
    if (data.kind === "ask" && token !== null)
      send({ kind: "answer", id: data.id, token, usedAt: isVisible ? Date.now() : usedAt });
    if (data.kind === "opened") onOpened(data.token);
  });
}
