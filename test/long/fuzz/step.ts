import fc from "fast-check";
import type { Key, Model, Workspace } from "./model.ts";
import type { Service } from "./service.ts";

export type Step = fc.AsyncCommand<Model, Service>;

/** A command of fast-check that prints as `name {what}`; where `check` fails, it is left out. */
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

/** One of the keys: as a rule one that is good. */
export const someKey = fc.oneof({ weight: 3, arbitrary: someWorkspace }, fc.nat(6));

/** Any number: the model has as many things as it has. */
export const some = fc.nat(30);

/** One of `items`, by any number. @throws Error when there are none. */
export function pick<T>(items: T[], index: number): T {
  if (items.length === 0) throw new Error("there is nothing to pick from");
  return items[index % items.length] as T;
}

/** Whose a thing is that a key asks for: as a rule its own workspace's. */
export const someOwner = fc.constantFrom("own", "own", "own", "other");

/** The workspace that `someOwner` means to `key`. */
export function ownerOf(model: Model, key: Key, owner: string): Workspace {
  const other = model.workspaces.find((workspace) => workspace !== key.workspace);
  return owner === "other" && other ? other : key.workspace;
}

/** The workspace that `someWorkspace` means. */
export function workspaceOf(model: Model, index: number): Workspace {
  return pick(model.workspaces, index);
}
