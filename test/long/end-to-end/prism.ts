import { spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { stripVTControlCharacters } from "node:util";
import { ROOT } from "../../../scripts/shared/checkout.ts";

/** A fault that Prism finds in a request or its response; `location` starts with `request` or `response`. */
interface Violation {
  location: string[];
  severity: string;
  code?: string | number;
  message: string;
}

/** A response as the upstream gave it, and Prism's verdict on the exchange. */
export interface Exchange {
  status: number;
  body: string;
  ofRequest: Violation[];
  ofResponse: Violation[];
}

/** A local HTTP server that runs until it is stopped. */
export interface Service {
  url: URL;
  stop(): Promise<void>;
}

/** Starts Prism's validating proxy with the committed document, in front of `upstream`. */
export async function startPrism(upstream: URL): Promise<Service> {
  const prism = join(ROOT, "node_modules/@stoplight/prism-cli/dist/index.js");
  const words = [prism, "proxy", join(ROOT, "openapi.json"), upstream.href, "--port", "0"];
  const child = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const said: string[] = [];
  const url = await new Promise<URL>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      said.push(line);
      const address = /is listening on (\S+)/.exec(stripVTControlCharacters(line))?.[1];
      if (address) resolve(new URL(address));
    });
    ended.then(() => reject(new Error(`Prism ended:\n${said.join("\n")}`)));
  });
  return {
    url,
    stop: () => {
      child.kill();
      return ended;
    },
  };
}

/**
 * Starts one upstream for several services: the header `X-Upstream` of a request names the one that
 * answers it.
 */
export async function startSwitchboard(upstreams: Record<string, URL>): Promise<Service> {
  const server = createServer(async (request, response) => {
    const { authorization, "content-type": type, "x-upstream": name } = request.headers;
    const upstream = upstreams[String(name)];
    if (!upstream) throw new Error(`no upstream ${name}`);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const answer = await fetch(new URL(request.url ?? "", upstream), {
      method: request.method ?? "GET",
      headers: {
        "Accept-Encoding": "identity",
        ...(authorization && { Authorization: authorization }),
        ...(type && { "Content-Type": type }),
      },
      ...(body.length > 0 && { body }),
    });
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.end(Buffer.from(await answer.arrayBuffer()));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()));
  const { port } = server.address() as AddressInfo;
  return {
    url: new URL(`http://127.0.0.1:${port}`),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/**
 * Sends a request to `upstream` of the switchboard, through Prism.
 *
 * @throws Error if Prism answers instead of the upstream.
 */
export async function exchange(
  prism: URL,
  upstream: string,
  path: string,
  init: { method: string; headers: Record<string, string>; body?: string },
): Promise<Exchange> {
  const headers = { ...init.headers, "X-Upstream": upstream };
  const answer = await fetch(new URL(path, prism), { ...init, headers });
  const body = await answer.text();
  if (answer.headers.get("content-type") === "application/problem+json")
    throw new Error(`Prism did not pass on what ${upstream} answers to ${path}: ${body}`);
  const violations: Violation[] = JSON.parse(answer.headers.get("sl-violations") ?? "[]");
  const about = (side: string) => violations.filter(({ location }) => location[0] === side);
  return {
    status: answer.status,
    body,
    ofRequest: about("request"),
    ofResponse: about("response"),
  };
}
