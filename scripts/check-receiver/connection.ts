import { subscribe, unsubscribe } from "node:diagnostics_channel";

/** Descriptions of Node's connection error codes. */
const FAILURES: Record<string, string> = {
  ENOTFOUND: "DNS: no such name",
  EAI_AGAIN: "DNS: no response",
  ECONNREFUSED: "connection refused",
  ECONNRESET: "closed without a response",
  EPIPE: "closed without a response",
  EHOSTUNREACH: "host unreachable",
  ENETUNREACH: "network unreachable",
  ETIMEDOUT: "no connection: timeout",
  UND_ERR_CONNECT_TIMEOUT: "no connection: timeout",
  UND_ERR_SOCKET: "closed without a response",
  CERT_HAS_EXPIRED: "TLS: certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: "TLS: certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "TLS: certificate is self-signed",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "TLS: certificate chain is incomplete",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "TLS: certificate chain is incomplete",
  ERR_TLS_CERT_ALTNAME_INVALID: "TLS: certificate for another name",
};

/** The advice after a failure, by the beginning of its description. */
const ADVICE: [start: RegExp, advice: string][] = [
  [/^connection/, "Is your handler running, and are the address and port in URL correct?"],
  [
    /^(closed|not HTTP)/,
    "Does URL have the port of your handler, and the right scheme, http or https?",
  ],
  [/^DNS/, "Is the name in URL correct, and does it resolve?"],
  [/^TLS: handshake/, "Does your handler speak https on this port?"],
  [
    /^TLS/,
    "The service verifies certificates: use one from a public authority, with its chain. Here, --insecure accepts any.",
  ],
  [
    /^(host|network|no connection)/,
    "Is the address in URL correct, and does the firewall allow connections to it?",
  ],
];

/** Returns the advice after a connection failure; null if it was another failure. */
export function adviceFor(failure: string): string | null {
  return ADVICE.find(([start]) => start.test(failure))?.[1] ?? null;
}

/** The channels on which `fetch` publishes why a request failed; its error does not always say. */
const CHANNELS = ["undici:client:connectError", "undici:request:error"];

/** Watches the connections that `fetch` makes; `end` returns why one failed, or null if none did. */
export function watchConnections(): { end(): string | null } {
  let failure: string | null = null;
  const listen = (message: unknown) => {
    const { error } = message as { error: Error & { code?: string } };
    // Aborting after the receiver's time limit is not a connection failure.
    if (error.name !== "AbortError" && error.name !== "TimeoutError") failure = describe(error);
  };
  for (const channel of CHANNELS) subscribe(channel, listen);
  return {
    end: () => {
      for (const channel of CHANNELS) unsubscribe(channel, listen);
      return failure;
    },
  };
}

function describe({ code = "", name, message }: Error & { code?: string }): string {
  const known = FAILURES[code];
  if (known) return known;
  if (name === "HTTPParserError") return "not HTTP";
  if (code.startsWith("ERR_SSL_") || code === "EPROTO") return "TLS: handshake failed";
  return `no connection: ${code || message}`;
}
