import { retryTransient } from "../db/client.ts";

/** A new object is there within milliseconds. */
const WAIT_MS = 20;

/**
 * Calls a Durable Object of this deployment's `JURISDICTION`, retrying if the object was reset during
 * the call or was unreachable. A call whose reply was lost may have been carried out: it must be safe
 * to repeat, and one that counts may count once more for each lost reply.
 *
 * @throws the last call's error; an overloaded object is not retried.
 */
export function callObject<T extends Rpc.DurableObjectBranded, Reply>(
  { JURISDICTION: jurisdiction }: Env,
  binding: DurableObjectNamespace<T>,
  name: string,
  call: (object: DurableObjectStub<T>) => Reply,
): Promise<Awaited<Reply>> {
  const objects = objectsIn(jurisdiction, binding);
  // A new stub each time: one whose object was reset stays broken.
  return retryTransient(() => call(objects.getByName(name)), WAIT_MS);
}

/** The objects that live in a jurisdiction; all of them if it is empty, or in the local runtime. */
function objectsIn<T extends Rpc.DurableObjectBranded>(
  jurisdiction: string,
  binding: DurableObjectNamespace<T>,
): DurableObjectNamespace<T> {
  try {
    return jurisdiction ? binding.jurisdiction(jurisdiction as DurableObjectJurisdiction) : binding;
  } catch (error) {
    if (error instanceof Error && error.message.includes("not implemented in workerd"))
      return binding;
    throw error;
  }
}
