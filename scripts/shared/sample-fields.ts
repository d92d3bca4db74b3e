import { Chance } from "./chance.ts";

/** A business of the sample workspace, and what it sells. */
export interface Business {
  reference: string;
  name: string;
  city: string;
  sells: "homes" | "cars";
}

/** A person who left their details; all are invented. */
export interface Person {
  name: string;
  email: string;
  phone: string;
}

interface Form {
  name: string;
  campaign: string;
  /** Questions, as Meta turns them into keys, and the possible answers. */
  questions: Record<string, readonly string[]>;
}

const FORMS: Record<Business["sells"], readonly Form[]> = {
  homes: [
    {
      name: "Estimation gratuite",
      campaign: "Vendeurs – estimation en 24 h",
      questions: {
        "quel_est_votre_projet_?": ["vendre", "faire_estimer", "mettre_en_location"],
        "quel_type_de_bien_?": ["appartement", "maison", "terrain", "local_commercial"],
        "surface_en_m²": ["45", "68", "92", "120", "165"],
        "dans_quel_délai_?": ["moins_de_3_mois", "3_à_6_mois", "plus_de_6_mois"],
      },
    },
    {
      name: "Programme neuf – demande de brochure",
      campaign: "Acquéreurs – programme neuf",
      questions: {
        "quel_est_votre_budget_?": [
          "moins_de_200_000_€",
          "200_000_–_350_000_€",
          "plus_de_350_000_€",
        ],
        "combien_de_pièces_?": ["t2", "t3", "t4", "t5_et_plus"],
        "résidence_principale_ou_investissement_?": ["résidence_principale", "investissement"],
        "avez-vous_un_accord_de_financement_?": ["oui", "non", "en_cours"],
      },
    },
  ],
  cars: [
    {
      name: "Essai sur rendez-vous",
      campaign: "Portes ouvertes – essais",
      questions: {
        "quel_modèle_vous_intéresse_?": [
          "citadine_électrique",
          "suv_hybride",
          "break",
          "utilitaire",
        ],
        "quand_souhaitez-vous_essayer_?": ["cette_semaine", "ce_mois-ci", "plus_tard"],
        "avez-vous_un_véhicule_à_reprendre_?": ["oui", "non"],
      },
    },
    {
      name: "Reprise de votre véhicule",
      campaign: "Reprise – prime de 2 000 €",
      questions: {
        "année_de_mise_en_circulation_?": ["avant_2015", "2015_–_2019", "2020_et_après"],
        kilométrage: ["moins_de_50_000", "50_000_–_100_000", "plus_de_100_000"],
        financement: ["comptant", "crédit", "location_avec_option_d_achat"],
      },
    },
  ],
};

/** The custom fields of a Meta lead ad: its ids, the answers to the form, the consents. */
export function leadAdFields(chance: Chance, business: Business, person: Person, at: number) {
  const form = chance.pick(FORMS[business.sells]);
  const title = `${form.name} – ${business.city}`;
  const campaign = `${form.campaign} – ${business.city}`;
  const ad = chance.pick(["Vidéo 15 s", "Carrousel", "Image – visuel B"]);
  const answers = Object.entries(form.questions).map(([name, values]) => ({
    name,
    values: [chance.pick(values)],
  }));
  return {
    leadgen_id: chance.digits(16),
    created_time: new Date(at).toISOString().replace(/\.\d+Z$/, "+0000"),
    platform: chance.pick(["fb", "ig"]),
    page_id: idOf(business.reference, 15),
    form_id: idOf(title, 16),
    form_name: title,
    // A form can also be filled in without an ad.
    ...(chance.happens(0.1)
      ? { is_organic: true }
      : {
          is_organic: false,
          campaign_id: idOf(campaign, 18),
          campaign_name: campaign,
          ad_id: idOf(`${campaign} ${ad}`, 18),
          ad_name: ad,
        }),
    field_data: [
      { name: "full_name", values: [person.name] },
      { name: "email", values: [person.email] },
      { name: "phone_number", values: [person.phone] },
      ...answers,
    ],
    custom_disclaimer_responses: [
      { checkbox_key: "j_accepte_d_être_recontacté", is_checked: "1" },
      { checkbox_key: "j_accepte_la_newsletter", is_checked: chance.happens(0.4) ? "1" : "" },
    ],
  };
}

/** The identifier that another system gave to something with this name. */
function idOf(name: string, digits: number): string {
  return Chance.of(name).digits(digits);
}

const STAGES = [
  { stage: "nouveau", label: "Nouveau", probability: 0.1 },
  { stage: "rendez_vous_pris", label: "Rendez-vous pris", probability: 0.3 },
  { stage: "offre_envoyee", label: "Offre envoyée", probability: 0.6 },
  { stage: "gagne", label: "Gagné", probability: 1 },
  { stage: "perdu", label: "Perdu", probability: 0 },
] as const;

/** The custom fields of a CRM contact: its deal, if there is one, its owner, its consents. */
export function crmFields(chance: Chance, business: Business, person: Person, at: number) {
  const homes = business.sells === "homes";
  const amount = homes ? chance.between(90, 640) * 1000 : chance.between(60, 480) * 100;
  const owner = chance.pick(["Nadia Ferrand", "Paul Lemaire", "Inès Kaddour"]);
  const deal = {
    id: chance.digits(11),
    name: `${person.name} – ${homes ? "mandat" : "commande"}`,
    ...chance.pick(STAGES),
    amount,
    currency: "EUR",
    close_date: new Date(at + chance.between(10, 90) * 86_400_000).toISOString().slice(0, 10),
  };
  return {
    contact_id: chance.digits(12),
    lifecycle_stage: chance.pick(["lead", "marketingqualifiedlead", "salesqualifiedlead"]),
    owner: { id: idOf(owner, 8), name: owner },
    deal: chance.happens(0.75) ? deal : null,
    consent: { email: chance.happens(0.8), phone: chance.happens(0.6), sms: false },
    tags: chance.happens(0.5) ? [chance.pick(["VIP", "relance", "parrainage"])] : [],
    score: chance.between(5, 95),
  };
}

/** The custom fields of someone who wrote on a social network. */
export function socialFields(chance: Chance, business: Business, person: Person) {
  return {
    platform: chance.pick(["facebook", "instagram"]),
    handle: `@${person.email.split("@")[0]?.replace(".", "_")}`,
    post_id: `${chance.digits(15)}_${chance.digits(16)}`,
    first_message:
      business.sells === "homes"
        ? chance.pick([
            "Bonjour, il est toujours disponible ?",
            "Quel est le prix du T3 ?",
            "Visite possible ?",
          ])
        : chance.pick(["Dispo en boîte auto ?", "Quelle reprise pour ma Clio ?", "Infos svp 🚗"]),
  };
}

/** The custom fields of a chat widget on the business's own site. */
export function widgetFields(chance: Chance, business: Business) {
  return {
    page_url: `https://www.example.com/${business.sells === "homes" ? "annonces" : "occasions"}/${chance.between(100, 999)}`,
    utm_source: chance.pick(["google", "newsletter", null]),
    messages_exchanged: chance.between(2, 14),
    consent_marketing: chance.happens(0.5),
  };
}

/** The custom fields of a call that an agent answered. */
export function callFields(chance: Chance) {
  return {
    call_id: `CA${chance.digits(14)}`,
    direction: "inbound",
    duration_seconds: chance.between(20, 420),
    recording_consent: chance.happens(0.7),
    outcome: chance.pick(["rendez_vous", "a_rappeler", "renseignement"]),
  };
}
