/** Prints every lead of the workspace, newest first, one JSON line each. */
import { Client } from "./client.js";

const { API_URL, API_KEY } = process.env;
if (!API_URL || !API_KEY) throw new Error("set API_URL and API_KEY");

const client = new Client({ url: API_URL, apiKey: API_KEY });
for await (const lead of client.listLeads()) console.log(JSON.stringify(lead));
