import { subscribe, unsubscribe } from "node:diagnostics_channel";

/** What Node calls the failures of a connection, in words. */
const FAILURES: Record<string, string> = {
  ENOTFOUND: "DNS: no such name",
  EAI_AGAIN: "DNS: no answer",
  ECONNREFUSED: "connection refused",
  ECONNRESET: "closed without an answer",
  EPIPE: "closed without an answer",
  EHOSTUNREACH: "host unreachable",
  ENETUNREACH: "network unreachable",
  ETIMEDOUT: "no connection: timeout",
  UND_ERR_CONNECT_TIMEOUT: "no connection: timeout",
  UND_ERR_SOCKET: "closed without an answer",
  CERT_HAS_EXPIRED: "TLS: certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: "TLS: certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "TLS: certificate is self-signed",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "TLS: certificate chain has a gap",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "TLS: certificate chain has a gap",
  ERR_TLS_CERT_ALTNAME_INVALID: "TLS: certificate of another name",
};

/** What to look at after a failure, by how it begins. */
const ADVICE: Record<string, string> = {
  "connection refused": "Is the receiver running, and are the address and the port in URL right?",
  "closed without": "Is the port in URL that of the receiver, and is it http or https?",
  "no HTTP": "Is the port in URL that of the receiver, and is it http or https?",
  "DNS:": "Is the name in URL right, and published?",
  "TLS: no agreement": "Does the receiver speak https on this port?",
  "TLS:": "The service verifies certificates: use one of a public authority, with its chain.",
  "host unreachable": "Is the address in URL right, and does a firewall let it be reached?",
  "network unreachable": "Is the address in URL right, and does a firewall let it be reached?",
  "no connection": "Is the address in URL right, and does a firewall let it be reached?",
};

/** What to look at when a delivery failed so; null when it is no failure of the connection. */
export function adviceFor(failure: string): string | null {
  return Object.entries(ADVICE).find(([start]) => failure.startsWith(start))?.[1] ?? null;
}

/** Where `fetch` tells why a request failed; the error that it throws for it is not always at hand. */
const CHANNELS = ["undici:client:connectError", "undici:request:error"];

/** Watches the connections that `fetch` makes, until `end` says why one failed; null if none did. */
export function watchConnections(): { end(): string | null } {
  let failure: string | null = null;
  const listen = (message: unknown) => {
    const { error } = message as { error: Error & { code?: string } };
    // Being given up after the time that a receiver has is no failure of the connection.
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
  if (name === "HTTPParserError") return "no HTTP";
  if (code.startsWith("ERR_SSL_") || code === "EPROTO") return "TLS: no agreement";
  return `no connection: ${code || message}`;
}
