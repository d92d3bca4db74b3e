import { z } from "zod";

/**
 * The closed list of error codes (contract, Errors): HTTP statuses, the first being the usual one,
 * French message, and the condition in a developer's words. The enum, the type and the responses of
 * the OpenAPI document all derive from this table.
 */
export const ERRORS = {
  invalid_request: {
    statuses: [400, 413, 415],
    message: "La requête est invalide.",
    when: "A query parameter or the body is invalid; `details.reason` says why.",
  },
  invalid_api_key: {
    statuses: [401],
    message: "La clé d’API est absente ou n’est pas valide.",
    when: "The key is missing, malformed, unknown or revoked; these cases are indistinguishable.",
  },
  workspace_access_denied: {
    statuses: [403],
    message: "L’espace de travail n’a pas accès à ce service.",
    when: "The key is valid, but its workspace has no access to the service. Takes from the quota; once that is used up, the answer is the same.",
  },
  automation_not_found: {
    statuses: [404],
    message: "Cette automatisation n’existe pas dans l’espace de travail.",
    when: "No such automation in this workspace.",
  },
  webhook_not_found: {
    statuses: [404],
    message: "Cet abonnement n’existe pas dans l’espace de travail.",
    when: "No such subscription in this workspace; also on a second deletion.",
  },
  route_not_found: {
    statuses: [404],
    message: "Cette route n’existe pas ou n’est pas encore servie.",
    when: "The path is unknown, or the route is not served by this deployment.",
  },
  automation_not_controllable: {
    statuses: [422],
    message:
      "Cette automatisation est un brouillon ou en erreur : elle ne peut être ni activée ni mise en pause.",
    when: "The automation is `draft` or `error`.",
  },
  rate_limited: {
    statuses: [429],
    message: "Trop de requêtes : réessayez plus tard.",
    when: "The key's quota is used up, or the address has failed to authenticate too often.",
  },
  internal_error: {
    statuses: [500],
    message: "Une erreur interne est survenue.",
    when: "Something failed on our side.",
  },
} as const;

export type ErrorCode = keyof typeof ERRORS;
export type ErrorStatus = (typeof ERRORS)[ErrorCode]["statuses"][number];

/** The closed list of `details.reason`, each with the French message that the answer then carries. */
export const REASONS = {
  required: "Une valeur obligatoire est absente.",
  invalid_type: "Une valeur n’est pas du type attendu.",
  out_of_range: "Une valeur est hors des bornes admises.",
  unreadable: "Ce curseur est illisible.",
  unknown_property: "Le corps contient une propriété inconnue.",
  invalid_url: "Cette URL n’est pas valide.",
  https_required: "L’URL doit être en HTTPS.",
  credentials_not_allowed: "L’URL ne doit pas contenir d’identifiants.",
  private_address: "L’URL ne doit pas désigner une adresse privée ou locale.",
  unresolvable_host: "Le nom d’hôte de l’URL est introuvable.",
  invalid_json: "Le corps n’est pas un document JSON lisible.",
  body_too_large: "Le corps de la requête est trop volumineux.",
  unsupported_media_type: "Le type de contenu doit être application/json.",
  subscription_limit_reached: "Le nombre maximal d’abonnements est atteint.",
} as const;

export type Reason = keyof typeof REASONS;

/** The body of every 4xx and 5xx answer. */
export const ErrorBody = z
  .object({
    error: z.object({
      code: z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]).meta({
        id: "ErrorCode",
        description: "Stable and closed: branch on it, not on the status.",
      }),
      message: z.string().meta({
        description: "In French, for display; may change.",
        example: ERRORS.invalid_request.message,
      }),
      details: z
        .object({
          parameter: z.string().optional().meta({ description: "The faulty parameter." }),
          reason: z.enum(Object.keys(REASONS) as [Reason, ...Reason[]]).optional(),
          min: z.int().optional(),
          max: z.int().optional(),
          retry_after_seconds: z.int().optional().meta({ description: "As `Retry-After`." }),
        })
        .meta({ description: "`{}` or context." }),
    }),
  })
  .meta({ id: "Error" });

export type ErrorDetails = z.infer<typeof ErrorBody>["error"]["details"];

/** An answer of the contract, thrown: the HTTP door turns it into the error body. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetails;
  readonly status: ErrorStatus;

  /** @param status one of the code's statuses; the usual one when left out. */
  constructor(
    code: ErrorCode,
    details: ErrorDetails = {},
    status: ErrorStatus = ERRORS[code].statuses[0],
  ) {
    super(details.reason ? REASONS[details.reason] : ERRORS[code].message);
    this.name = "ApiError";
    this.code = code;
    this.details = details;
    this.status = status;
  }

  /** The error body of the contract. */
  toBody(): z.infer<typeof ErrorBody> {
    return { error: { code: this.code, message: this.message, details: this.details } };
  }
}
