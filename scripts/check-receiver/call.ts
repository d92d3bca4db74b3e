import { isCancel, password } from "@clack/prompts";
import { parseTarget, type TargetFault } from "../../src/endpoints/target.ts";
import { parseArguments, parseHeaders } from "../shared/command.ts";

const COMMAND =
  process.env.npm_lifecycle_event === "check-receiver"
    ? "npm run check-receiver --"
    : "node check-receiver.mjs";

const USAGE = `${COMMAND} URL [--local] [--header "NAME: VALUE"]… [--insecure]

Sends 11 test deliveries to URL, labelled in the header X-Service-Test, and reports whether your
handler treats them correctly. 6 of them are valid: a handler that does not skip deliveries with
this header processes 5 invented leads. If your handler rejects the first delivery, some more
follow, to find out why.

  --local         allow http and private addresses
  --header H      adds a header to each delivery, such as "X-Token: abc" for a gateway; repeatable.
                  "X-Service-Webhook: whk_…" names the webhook, if your handler looks up its
                  secret by that; otherwise the deliveries name one that does not exist
  --insecure      accepts any certificate, such as that of a development server
  WEBHOOK_SECRET  environment variable: the secret that your handler verifies with, as returned by
                  POST /v1/webhooks; if it is not set, the terminal asks for it
`;

const FAULTS: Record<TargetFault, string> = {
  invalid_url: "Not a valid URL",
  https_required: "URL must start with https://; --local also allows http://",
  credentials_not_allowed: "URL must not contain a user name or password",
  private_address: "URL is a private or local address; --local allows it",
};

/** Says what is wrong with a call of the command. */
export class UsageError extends Error {}

/** A call of the command. */
interface Call {
  /** The URL of the receiver to check. */
  url: string;
  /** The headers that it needs. */
  headers: Record<string, string>;
  isInsecure: boolean;
}

/** Parses the arguments. @throws UsageError if they are wrong. */
export function parseCall(args: string[]): Call {
  const { values, positionals } = parseArguments(
    USAGE,
    {
      secret: { type: "string" },
      local: { type: "boolean", default: false },
      header: { type: "string", multiple: true },
      insecure: { type: "boolean", default: false },
    },
    { allowPositionals: true, code: 2, args },
  );
  if (values.secret !== undefined)
    throw new UsageError(
      "The secret is not accepted on the command line, where others can read it: set WEBHOOK_SECRET",
    );
  const [url, ...rest] = positionals;
  if (url === undefined) throw new UsageError("URL is missing; --help shows the usage");
  if (rest.length > 0) throw new UsageError(`expected one URL, got ${positionals.length}`);
  const target = parseTarget(url, values.local);
  if (typeof target === "string") throw new UsageError(FAULTS[target]);
  try {
    return { url, headers: parseHeaders(values.header), isInsecure: values.insecure };
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** Reads the secret that signs deliveries from the environment or the terminal. @throws UsageError if there is none. */
export async function askForSecret(): Promise<string> {
  const { WEBHOOK_SECRET } = process.env;
  if (WEBHOOK_SECRET) return parseSecret("WEBHOOK_SECRET", WEBHOOK_SECRET);
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new UsageError("Set WEBHOOK_SECRET to the secret that POST /v1/webhooks returned");
  const answer = await password({ message: "The secret of the webhook, whsec_…" });
  if (isCancel(answer)) throw new UsageError("Cancelled: nothing was sent");
  return parseSecret("The secret", answer ?? "");
}

function parseSecret(name: string, secret: string): string {
  if (/^whsec_[A-Za-z0-9+/]{43}=$/.test(secret)) return secret;
  throw new UsageError(`${name} must be whsec_ and 44 characters of base64`);
}
