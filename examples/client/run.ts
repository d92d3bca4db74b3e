import { ApiError, Client } from "./client.js";

/**
 * Runs a small program with the client that API_URL and API_KEY describe. An error ends it with one
 * sentence and exit code 1.
 */
export async function run(program: (client: Client) => Promise<void>): Promise<void> {
  const { API_URL = "", API_KEY = "" } = process.env;
  // Whoever reads has enough: `npm start | head`.
  process.stdout.on("error", () => process.exit(0));
  try {
    if (!API_URL || !API_KEY)
      throw new Error(`Set ${API_URL ? "API_KEY" : "API_URL and API_KEY"}.`);
    if (!URL.canParse(API_URL)) throw new Error(`API_URL is no URL: ${API_URL}`);
    await program(new Client({ url: API_URL, apiKey: API_KEY }));
  } catch (error) {
    console.error(sentenceOf(error, API_URL));
    process.exit(1);
  }
}

function sentenceOf(error: unknown, url: string): string {
  if (error instanceof ApiError && error.code === "invalid_api_key")
    return `${url} does not accept API_KEY (401 invalid_api_key): is the key whole, and of this service?`;
  if (error instanceof ApiError)
    return `${url} refused the request: ${error.message} ${JSON.stringify(error.details)}`;
  if (!(error instanceof Error)) return String(error);
  // How fetch says that there was no answer.
  const cause = error.cause as NodeJS.ErrnoException | undefined;
  if (!cause) return error.message;
  return `${url} does not answer (${cause.code ?? cause.message}): is API_URL right, and does the service run?`;
}
