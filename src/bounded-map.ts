/** The values that were set last, by name: at most `max` of them. */
export class BoundedMap<T> {
  readonly #max: number;
  readonly #values = new Map<string, T>();

  constructor(max: number) {
    this.#max = max;
  }

  get(name: string): T | undefined {
    return this.#values.get(name);
  }

  set(name: string, value: T): void {
    // Deleted first, because a map keeps insertion order.
    this.#values.delete(name);
    this.#values.set(name, value);
    const [oldest] = this.#values.keys();
    if (this.#values.size > this.#max && oldest !== undefined) this.#values.delete(oldest);
  }

  delete(name: string): void {
    this.#values.delete(name);
  }

  clear(): void {
    this.#values.clear();
  }
}
