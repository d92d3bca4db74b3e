/** Calls of one object for one answer, the first included. */
const TRIES = 5;
/** The wait before the second call is random up to this, and doubles from there. */
const WAIT_MS = 20;

/** What the runtime says of a call that failed (developers.cloudflare.com/durable-objects, Error handling). */
interface CallError extends Error {
  /** The object could not be reached, and may be a moment later. */
  retryable?: boolean;
  /** The object was reset under the call, as each deployment does. */
  durableObjectReset?: boolean;
  /** One more call would make it worse. */
  overloaded?: boolean;
}

/**
 * Calls a Durable Object, and again, on a stub of its own, when the object was reset under the call or
 * could not be reached. A call whose reply was lost has been carried out: it must be one that can be
 * carried out again. One that counts then counts twice, at the most once for each reply that was lost.
 *
 * @throws what the last call threw: an object that is overloaded is left alone.
 */
export async function callObject<T extends Rpc.DurableObjectBranded, Reply>(
  objects: DurableObjectNamespace<T>,
  name: string,
  call: (object: DurableObjectStub<T>) => Reply,
): Promise<Awaited<Reply>> {
  for (let attempt = 1; ; attempt++) {
    try {
      // A stub whose object was reset stays broken.
      return await call(objects.getByName(name));
    } catch (error) {
      if (attempt === TRIES || !isPassing(error)) throw error;
      const waitMs = Math.random() * WAIT_MS * 2 ** (attempt - 1);
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

function isPassing(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { retryable, durableObjectReset, overloaded } = error as CallError;
  return !overloaded && Boolean(retryable || durableObjectReset);
}
