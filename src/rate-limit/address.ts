import ipaddr from "ipaddr.js";
import { toHex } from "../contract/bytes.ts";
import { mac } from "../encryption/mac.ts";

/** The names that an address's failures are counted under. */
export interface AddressName {
  /** Of the gate, which counts for all of these together: an IPv4 address, or the /48 of an IPv6 one. */
  network: string;
  /** What has a window of its own: an IPv4 address, or the /64 of an IPv6 one. */
  block: string;
}

/**
 * The names an address is counted under. IPv4 addresses count individually; IPv6 addresses by /64, the
 * smallest block a network customer gets, and by /48, the largest that one usually gets.
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
 * A pseudonym for an address in the logs: always the same for an address, but not reversible
 * without the secret.
 *
 * @param secret `API_KEY_CHECKSUM_KEYS`; rotating it changes the pseudonyms.
 * @param block the address's, of `nameAddress`.
 */
export async function addressAlias(secret: string, block: string): Promise<string> {
  const bytes = await mac(secret, `address ${block}`);
  return toHex(new Uint8Array(bytes.buffer, 0, 8));
}
