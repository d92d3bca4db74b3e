import fc from "fast-check";
import { expect } from "vitest";
import type { Key, Model, Workspace } from "./model.ts";
import type { Service } from "./service.ts";

export type Step = fc.AsyncCommand<Model, Service>;

/** A fast-check command that prints as `name {what}`; if `check` fails, it is skipped. */
export function step<What>(
  name: string,
  what: fc.Arbitrary<What>,
  run: (model: Model, service: Service, what: What) => Promise<void>,
  check: (model: Model, what: What) => boolean = () => true,
): fc.Arbitrary<Step> {
  return what.map((values) => ({
    check: (model) => check(model, values),
    run: (model, service) => run(model, service, values),
    toString: () => `${name} ${fc.stringify(values)}`,
  }));
}

/** One of two workspaces. */
export const someWorkspace = fc.integer({ min: 0, max: 1 });

/** One of the keys, usually a valid one. */
export const someKey = fc.oneof({ weight: 3, arbitrary: someWorkspace }, fc.nat(6));

/** Any number: it is reduced to however many things the model has. */
export const some = fc.nat(30);

/** One of `items`, chosen by any number. @throws Error if there are none. */
export function pick<T>(items: T[], index: number): T {
  if (items.length === 0) throw new Error("there is nothing to pick from");
  return items[index % items.length] as T;
}

/** Whose thing a key asks for, usually its own workspace's. */
export const someOwner = fc.constantFrom("own", "own", "own", "other");

/** The workspace that `someOwner` refers to for `key`. */
export function ownerOf(model: Model, key: Key, owner: string): Workspace {
  const other = model.workspaces.find((workspace) => workspace !== key.workspace);
  return owner === "other" && other ? other : key.workspace;
}

/** The workspace that `someWorkspace` refers to. */
export function workspaceOf(model: Model, index: number): Workspace {
  return pick(model.workspaces, index);
}

/** Matches a time in a response that lies between two times (Unix milliseconds). */
export function between(from: number, to: number): string {
  return expect.toSatisfy(
    (time: string) => Date.parse(time) >= from && Date.parse(time) <= to,
    `between ${new Date(from).toISOString()} and ${new Date(to).toISOString()}`,
  );
}
