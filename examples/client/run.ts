import { ApiError, Client } from "./client.js";

/**
 * Runs a small program with a client for API_URL and API_KEY. If it throws, prints one sentence and
 * exits with code 1.
 */
export async function run(program: (client: Client) => Promise<void>): Promise<void> {
  const { API_URL = "", API_KEY = "" } = process.env;
  // The reader of a pipe has stopped, as in `npm start | head`.
  process.stdout.on("error", () => process.exit(0));
  try {
    if (!API_URL || !API_KEY)
      throw new Error(`Set ${API_URL ? "API_KEY" : "API_URL and API_KEY"}.`);
    if (!URL.canParse(API_URL)) throw new Error(`API_URL is not a URL: ${API_URL}`);
    await program(new Client({ url: API_URL, apiKey: API_KEY }));
  } catch (error) {
    console.error(sentenceOf(error, API_URL));
    process.exit(1);
  }
}

function sentenceOf(error: unknown, url: string): string {
  if (error instanceof ApiError && error.code === "invalid_api_key")
    return `${url} does not accept API_KEY (401 invalid_api_key): is the key complete, and is it for this service?`;
  if (error instanceof ApiError)
    return `${url} rejected the request: ${error.message} ${JSON.stringify(error.details)}`;
  if (!(error instanceof Error)) return String(error);
  // Set by fetch if there was no response.
  const cause = error.cause as NodeJS.ErrnoException | undefined;
  if (!cause) return error.message;
  return `${url} does not respond (${cause.code ?? cause.message}): is API_URL correct, and is the service running?`;
}
