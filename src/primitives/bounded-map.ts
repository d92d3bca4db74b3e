/** A map of at most `max` values. Setting one more deletes the value that was set the longest ago. */
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
    // The value is deleted first, because a map keeps the order of insertion.
    this.#values.delete(name);
    this.#values.set(name, value);
    const [oldest] = this.#values.keys();
    if (this.#values.size > this.#max && oldest !== undefined) this.#values.delete(oldest);
  }

  clear(): void {
    this.#values.clear();
  }
}
