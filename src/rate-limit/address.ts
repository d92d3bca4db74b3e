import ipaddr from "ipaddr.js";
import { mac } from "../encryption/mac.ts";
import { toHex } from "../primitives/bytes.ts";

/** The names under which the failures of an IP address are counted. */
export interface AddressName {
  /** The name of the gate: an IPv4 address, or the /48 of an IPv6 address. */
  network: string;
  /** The part of the network with a window of its own: an IPv4 address, or the /64 of an IPv6 address. */
  block: string;
}

/**
 * Returns the names under which an IP address is counted. IPv4 addresses count individually. IPv6 addresses count by
 * /64, the smallest block that a network customer gets, and by /48, the largest that one usually gets.
 */
export function nameAddress(address: string | undefined): AddressName {
  if (!address || !ipaddr.isValid(address)) return { network: "unknown", block: "unknown" };
  const parsed = ipaddr.process(address);
  if (parsed instanceof ipaddr.IPv4) {
    const name = parsed.toString();
    return { network: name, block: name };
  }
  const parts = parsed.parts.map((part) => part.toString(16));
  const prefix = (length: number) => `${parts.slice(0, length / 16).join(":")}::/${length}`;
  return { network: prefix(48), block: prefix(64) };
}

/**
 * Returns a pseudonym of an IP address for the logs. An address always has the same one, which cannot be reversed
 * without the secret.
 *
 * @param secret `API_KEY_CHECKSUM_KEYS`; rotating it changes the pseudonyms.
 * @param block the block of the address, from `nameAddress`.
 */
export async function addressAlias(secret: string, block: string): Promise<string> {
  const bytes = await mac(secret, `address ${block}`);
  return toHex(new Uint8Array(bytes.buffer, 0, 8));
}
