/** Maximum number of calls per answer, including the first. */
const TRIES = 5;
/** Upper bound of the random wait before the second call; doubles with each call. */
const WAIT_MS = 20;

/**
 * Properties the runtime sets on a failed call (developers.cloudflare.com/durable-objects, Error
 * handling).
 */
interface CallError extends Error {
  /** The object was unreachable and may be reachable again soon. */
  retryable?: boolean;
  /** The object was reset during the call, as happens at each deployment. */
  durableObjectReset?: boolean;
  /** Another call would make it worse. */
  overloaded?: boolean;
}

/**
 * Calls a Durable Object, retrying with a fresh stub if the object was reset during the call or was
 * unreachable. A call whose reply was lost may have been carried out, so it must be safe to repeat.
 * A call that counts may count once more for each lost reply.
 *
 * @throws the last call's error; an overloaded object is not retried.
 */
export async function callObject<T extends Rpc.DurableObjectBranded, Reply>(
  objects: DurableObjectNamespace<T>,
  name: string,
  call: (object: DurableObjectStub<T>) => Reply,
): Promise<Awaited<Reply>> {
  for (let attempt = 1; ; attempt++) {
    try {
      // A new stub each time: one whose object was reset stays broken.
      return await call(objects.getByName(name));
    } catch (error) {
      if (attempt === TRIES || !isRetryable(error)) throw error;
      const waitMs = Math.random() * WAIT_MS * 2 ** (attempt - 1);
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

function isRetryable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { retryable, durableObjectReset, overloaded } = error as CallError;
  return !overloaded && Boolean(retryable || durableObjectReset);
}
