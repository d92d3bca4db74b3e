/**
 * A repeatable source of randomness: the same seed gives the same choices in the same order
 * (mulberry32).
 */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** Creates a source that gives the same choices for the same name (seeded with its FNV-1a hash). */
  static of(name: string): Chance {
    let hash = 0x811c9dc5;
    for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193);
    return new Chance(hash);
  }

  /** Returns a number from 0 to 1, excluding 1. */
  number(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Returns an integer in a range, both ends included. */
  between(min: number, max: number): number {
    return min + Math.floor(this.number() * (max - min + 1));
  }

  /** Returns true with this probability. */
  happens(probability: number): boolean {
    return this.number() < probability;
  }

  /** Returns one of `items`, all equally likely. @throws Error if there are none. */
  pick<T>(items: readonly T[]): T {
    const item = items[this.between(0, items.length - 1)];
    if (item === undefined) throw new Error("nothing to pick from");
    return item;
  }
}
