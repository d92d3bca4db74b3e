import { RECORDS_MAX } from "../../src/contract/limits.ts";
import type { PlatformInput } from "../../src/platform/operations.ts";
import { chunk } from "../../src/primitives/chunk.ts";
import { Chance } from "./chance.ts";
import type { PlatformClient } from "./platform-client.ts";

type Automation = PlatformInput<"recordAutomations">["automations"][number];
type Lead = PlatformInput<"recordLeads">["leads"][number];
type Agent = Lead["agent"];
type Run = PlatformInput<"recordRuns">["runs"][number];

/** A run that refers to its automation and its lead by their index in the sample. */
type SampleRun = Omit<Run, "reference" | "automationId" | "leadId"> & {
  automation: number;
  lead: number | null;
};

const LEADS = 300;
/** Runs without a lead, such as a reply to a comment. */
const RUNS_WITHOUT_LEAD = 160;
const SPREAD_MS = 42 * 86_400_000;

/** The businesses of the sample workspace, each an agent. */
const AGENTS: readonly [Agent, Agent, Agent, Agent] = [
  { reference: "lumiere-lyon", name: "Agence Lumière Lyon" },
  { reference: "lumiere-annecy", name: "Agence Lumière Annecy" },
  { reference: "garage-du-parc", name: "Garage du Parc" },
  { reference: "auto-sud", name: "Auto Sud" },
];

const FIRST_NAMES =
  "Camille Inès Louis Jade Hugo Léa Nathan Chloé Yanis Manon Théo Sarah Jules Zoé Karim Élise";
const LAST_NAMES =
  "Durand Moreau Lefèvre Garcia Roux Fontaine Benali Marchand Perrin Diallo Gauthier Nguyen Barbier";

const SOCIAL_TYPES = ["social_comments", "social_story", "social_messages", "lead_ads"] as const;
const STATES = ["active", "paused", "draft", "error"] as const;

const PROVIDERS = {
  social_comments: ["facebook", "instagram"],
  social_story: ["instagram", "instagram_page"],
  social_messages: ["facebook", "instagram", "instagram_page"],
  lead_ads: ["facebook", "instagram_page"],
} as const;

/** The trigger and the actions of each type of automation. */
const WORK = {
  social_comments: { trigger: "comment", actions: ["reply_comment", "send_private_message"] },
  social_story: { trigger: "story_reply", actions: ["send_private_message", "qualify_contact"] },
  social_messages: { trigger: "message", actions: ["send_message", "qualify_contact"] },
  lead_ads: { trigger: "lead_ads", actions: ["send_message", "send_email", "notify_agent"] },
  crm_source: { trigger: "crm_event", actions: ["update_crm_contact", "send_email"] },
} as const;

/** The sources of leads, repeated by frequency, and the automations that capture them. */
const SOURCES = [
  ...Array(4).fill({ source: "lead_ads", types: ["lead_ads"] }),
  ...Array(2).fill({ source: "crm", types: ["crm_source"] }),
  ...Array(2).fill({
    source: "social",
    types: ["social_comments", "social_story", "social_messages"],
  }),
  { source: "widget", types: [] },
  { source: "telephony", types: [] },
] as { source: Lead["source"]; types: Automation["type"][] }[];

/** The custom fields of each source, with the names and nesting of its system. */
const CUSTOM_FIELDS: Record<Lead["source"], (chance: Chance) => Record<string, unknown>> = {
  lead_ads: (chance) => ({
    platform: chance.pick(["fb", "ig"]),
    form_name: "Être rappelé",
    campaign_name: "Rentrée – rappel en 24 h",
    field_data: [
      { name: "quel_est_votre_projet_?", values: [chance.pick(["acheter", "vendre", "louer"])] },
      { name: "votre_budget_en_€", values: [String(chance.between(9, 350) * 1000)] },
    ],
    custom_disclaimer_responses: [
      { checkbox_key: "j_accepte_d_être_recontacté", is_checked: "1" },
      { checkbox_key: "j_accepte_la_newsletter", is_checked: chance.pick(["1", ""]) },
    ],
  }),
  crm: (chance) => ({
    lifecycle_stage: chance.pick(["lead", "marketingqualifiedlead", "salesqualifiedlead"]),
    owner: chance.pick(["Nadia Ferrand", "Paul Lemaire", "Inès Kaddour"]),
    deal: { stage: "rendez_vous_pris", amount: chance.between(90, 640) * 1000, currency: "EUR" },
    consent: { email: chance.happens(0.8), phone: chance.happens(0.6), sms: false },
    tags: chance.pick([[], ["VIP"], ["relance", "parrainage"]]),
  }),
  social: (chance) => ({
    platform: chance.pick(["facebook", "instagram"]),
    first_message: chance.pick(["Il est toujours disponible ?", "Quel prix ?", "Infos svp 🚗"]),
  }),
  widget: (chance) => ({
    page_url: `https://www.example.com/annonces/${chance.between(100, 999)}`,
    utm_source: chance.pick(["google", "newsletter", null]),
  }),
  telephony: (chance) => ({
    duration_seconds: chance.between(20, 420),
    outcome: chance.pick(["rendez_vous", "a_rappeler", "renseignement"]),
  }),
};

/** The statuses of runs, repeated by frequency. */
const ENDINGS = [...Array(7).fill("success"), "partial", "failed"] as Run["status"][];

/**
 * Records the sample data through the Platform API: automations of every type and status, leads
 * from every source, runs with every status. The references are the same each time, so an
 * interrupted load can be repeated.
 *
 * @param now Unix milliseconds; leads and runs are dated in the weeks before.
 */
export async function loadSample(
  platform: PlatformClient,
  workspaceId: string,
  now: number,
): Promise<void> {
  const { automations, leads, runs } = makeSample(now);
  const { ids: automationIds } = await platform.call("recordAutomations", {
    workspaceId,
    automations,
  });
  const leadIds: string[] = [];
  for (const some of chunk(leads, RECORDS_MAX)) {
    const { ids } = await platform.call("recordLeads", { workspaceId, leads: some });
    leadIds.push(...ids);
  }
  const named = runs.map(({ automation, lead, ...run }) => ({
    ...run,
    automationId: automationIds[automation] ?? "",
    leadId: lead === null ? null : (leadIds[lead] ?? ""),
  }));
  for (const some of chunk(named, RECORDS_MAX))
    await platform.call("recordRuns", { workspaceId, runs: some });
}

/** A lead that arrives at `now` (Unix milliseconds), with its own reference. */
export function freshLead(now: number): Lead {
  const chance = new Chance(now);
  const reference = `demonstration-${now}`;
  return makeLead(chance, reference, "lead_ads", chance.pick(AGENTS), now);
}

/**
 * Lead number `n` of an unlimited series, from any source: the same each time, except for its age.
 */
export function numberedLead(n: number, now: number): Lead {
  const reference = `seed-${n}`;
  const chance = Chance.of(reference);
  const at = now - Math.ceil(chance.number() * SPREAD_MS);
  return makeLead(chance, reference, chance.pick(SOURCES).source, chance.pick(AGENTS), at);
}

function makeSample(now: number) {
  const chance = new Chance(20_260_801);
  const time = () => now - Math.ceil(chance.number() * SPREAD_MS);
  const made = makeAutomations(chance, time);
  const running = [...made.entries()].filter(([, { status }]) => status !== "draft");
  const leads: Lead[] = [];
  const runs: SampleRun[] = [];
  while (leads.length < LEADS) {
    const at = time();
    const { source, types } = chance.pick(SOURCES);
    const capturing = running.filter(([, { type }]) => types.includes(type));
    const [place, automation] = capturing.length > 0 ? chance.pick(capturing) : [];
    const agent = automation?.agent ?? chance.pick(AGENTS);
    const lead = leads.push(makeLead(chance, `lead-${leads.length}`, source, agent, at)) - 1;
    if (automation && place !== undefined)
      runs.push({ ...makeRun(chance, automation.type, at), automation: place, lead });
  }
  for (let i = 0; i < RUNS_WITHOUT_LEAD; i++) {
    const [automation, { type }] = chance.pick(running);
    runs.push({ ...makeRun(chance, type, time()), automation, lead: null });
  }
  return {
    automations: made,
    leads,
    runs: runs.map((run, i) => ({ ...run, reference: `run-${i}` })),
  };
}

/** Each social type in each status, and two CRM automations. */
function makeAutomations(chance: Chance, time: () => number) {
  const make = (
    type: Automation["type"],
    provider: string,
    status: Automation["status"],
    agent: Agent,
    name: string | null = null,
  ) => {
    const reference = `${type}-${agent.reference}`;
    const updatedAt = new Date(time()).toISOString();
    return { reference, type, provider, status, agent, name, updatedAt };
  };
  const social = SOCIAL_TYPES.flatMap((type, turn) =>
    AGENTS.map((agent, i) => {
      const status = STATES[(i + turn) % STATES.length] ?? "active";
      return make(type, chance.pick(PROVIDERS[type]), status, agent);
    }),
  );
  const [, annecy, garage] = AGENTS;
  return [
    ...social,
    make("crm_source", "hubspot", "active", annecy, `Nouveau contact HubSpot – ${annecy.name}`),
    make("crm_source", "salesforce", "paused", garage, `Opportunité Salesforce – ${garage.name}`),
  ];
}

/** A lead with what its source knows: a call brings a number, a chat no number. */
function makeLead(
  chance: Chance,
  reference: string,
  source: Lead["source"],
  agent: Agent,
  at: number,
): Lead {
  const { name, email, phone } = makePerson(chance);
  return {
    reference,
    source,
    agent,
    name: source === "telephony" ? null : name,
    email: source === "telephony" ? null : email,
    phone: source === "widget" ? null : phone,
    customFields: CUSTOM_FIELDS[source](chance),
    createdAt: new Date(at).toISOString(),
  };
}

/**
 * A person with an address at example.com and a phone number from the range reserved for fiction.
 */
function makePerson(chance: Chance) {
  const first = chance.pick(FIRST_NAMES.split(" "));
  const last = chance.pick(LAST_NAMES.split(" "));
  const address = `${first}.${last}`.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  return {
    name: `${first} ${last}`,
    email: `${address}@example.com`,
    phone: `+3363998${String(chance.between(0, 9999)).padStart(4, "0")}`,
  };
}

/** A run a few seconds after `at`: all its actions done, or all but the first, or none. */
function makeRun(chance: Chance, type: Automation["type"], at: number) {
  const { trigger, actions } = WORK[type];
  const status = chance.pick(ENDINGS);
  return {
    status,
    triggerType: trigger,
    occurredAt: new Date(at + chance.between(1, 9) * 1000).toISOString(),
    actions: actions.map((action, i) => {
      if (status === "success") return { type: action, status: "success" };
      if (i === 0) return { type: action, status: "failed" };
      return { type: action, status: status === "partial" ? "success" : "skipped" };
    }),
  };
}
