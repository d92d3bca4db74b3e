/**
 * Splits items, in order, into groups whose total size is at most `max`. A larger item is a group by itself.
 *
 * @param sizeOf the size of an item; by default, `max` is a number of items.
 */
export function chunk<T>(
  items: readonly T[],
  max: number,
  sizeOf: (item: T) => number = () => 1,
): T[][] {
  const groups: T[][] = [];
  let total = Number.POSITIVE_INFINITY;
  for (const item of items) {
    const size = sizeOf(item);
    if (total + size > max) {
      groups.push([]);
      total = 0;
    }
    groups.at(-1)?.push(item);
    total += size;
  }
  return groups;
}
