import type { AutomationStatus } from "./enumerations.ts";

/*
 * To add a reason: an entry of `REASONS`, and its explanation in `src/http/document/errors.ts`.
 *
 * The list of error codes is closed within a version, so a new code is a breaking change. It needs a new path prefix, a new
 * `CONTRACT_VERSION` (`version.ts`) and its section in the changelog.
 */

/**
 * The closed list of error codes. Each has its HTTP statuses, the usual one first, its French message, when it is
 * returned, and what to do about it. The enum, the type, the OpenAPI responses and their examples derive from this
 * table.
 */
export const ERRORS = {
  invalid_request: {
    statuses: [400, 413, 415],
    message: "La requête est invalide.",
    when: "A query parameter, a header or the body is invalid.",
    todo: "Fix what `details` names, then send the request again. Each reason has a message of its own.",
  },
  invalid_api_key: {
    statuses: [401],
    message: "La clé d’API est absente ou invalide.",
    when: "The key is missing, malformed, unknown, revoked or expired. The response is the same in each case.",
    todo: "Check the `Authorization` header, or create a new key in the workspace settings.",
  },
  workspace_access_denied: {
    statuses: [403],
    message: "L’espace de travail n’a pas accès à ce service.",
    when: "The key is valid, but its workspace has no access to the API. Such requests count against the key's rate limit, but beyond it they still get 403, not 429.",
    todo: "Ask an administrator of the workspace to check its plan.",
  },
  automation_not_found: {
    statuses: [404],
    message: "Cette automatisation n’existe pas dans l’espace de travail.",
    when: "The workspace has no automation with this id.",
    todo: "Check the workspace of the key, and that the automation's account is connected.",
  },
  webhook_not_found: {
    statuses: [404],
    message: "Ce webhook n’existe pas dans l’espace de travail.",
    when: "The workspace has no webhook with this id, or it was deleted.",
    todo: "If you were trying to delete it, there is nothing left to do.",
  },
  route_not_found: {
    statuses: [404],
    message: "Cette route n’existe pas ou n’est pas encore disponible.",
    when: "The path or method is unknown, or this deployment does not serve it yet.",
    todo: "Check the method and path. Paths have no trailing slash.",
  },
  automation_not_controllable: {
    statuses: [422],
    message:
      "Cette automatisation est à l’état de brouillon ou en erreur\u00a0: elle ne peut être ni activée ni mise en pause.",
    when: "The automation is `draft` or `error`.",
    todo: "Activate or fix it in the app first. The event `automation.status_changed` shows when it is `active` or `paused`.",
  },
  rate_limited: {
    statuses: [429],
    message: "Trop de requêtes\u00a0: réessayez plus tard.",
    when: "The key's rate limit is reached, or too many requests from your IP address had no valid key.",
    todo: "Wait for the number of seconds in `Retry-After`, then retry.",
  },
  internal_error: {
    statuses: [500],
    message: "Une erreur interne est survenue.",
    when: "An error on our side.",
    todo: "Retry with exponential backoff, but retry a `POST` only with its `Idempotency-Key`. If the error persists, contact us and quote `X-Request-Id`.",
  },
} as const;

export type ErrorCode = keyof typeof ERRORS;
export type ErrorStatus = (typeof ERRORS)[ErrorCode]["statuses"][number];

/** Returns the URL of the section of the docs that explains an error code, relative to this deployment. */
export function helpFor(code: ErrorCode): string {
  return `/docs/guides/errors#${code.replaceAll("_", "-")}`;
}

/** The possible values of `details.reason`, each with the French message of the response. */
export const REASONS = {
  required: "Il manque une valeur obligatoire.",
  invalid_type: "Cette valeur n’est pas du type attendu.",
  unknown_value: "Cette valeur ne fait pas partie des valeurs admises.",
  out_of_range: "Cette valeur est en dehors des limites admises.",
  unreadable: "Ce curseur n’est pas valide pour cette liste.",
  unknown_property: "Le corps de la requête contient une propriété inconnue.",
  invalid_url: "Cette URL n’est pas valide.",
  https_required: "L’URL doit commencer par «\u00a0https://\u00a0».",
  credentials_not_allowed: "L’URL ne doit contenir ni nom d’utilisateur ni mot de passe.",
  private_address: "L’URL ne doit pas désigner une adresse privée ou locale.",
  unresolvable_host: "Le nom d’hôte de l’URL est introuvable.",
  invalid_json: "Le corps de la requête n’est pas du JSON valide.",
  body_too_large: "Le corps de la requête est trop volumineux.",
  body_too_slow: "Le corps de la requête n’a pas été reçu à temps.",
  unsupported_media_type:
    "Le corps de la requête doit être du JSON (application/json) non compressé.",
  subscription_limit_reached: "Le nombre maximal de webhooks est atteint.",
  idempotency_key_reused: "Cette clé d’idempotence a déjà été utilisée pour une autre requête.",
} as const;

/** The reasons that only the portal's page gets. Clients of the API never get them, so no document lists them. */
export const PORTAL_REASONS = {
  read_only_session: "Cette session du portail ne permet que la consultation.",
  changed_meanwhile: "Quelqu’un d’autre a modifié ce webhook entre-temps.",
} as const;

export type Reason = keyof typeof REASONS;
type PortalReason = keyof typeof PORTAL_REASONS;

/** The details of an error: the invalid parameter, the reason, and the values that would be valid. */
export interface ErrorDetails {
  parameter?: string;
  reason?: Reason | PortalReason;
  allowed?: string[];
  min?: number;
  max?: number;
  status?: AutomationStatus;
  retry_after_seconds?: number;
}

const MESSAGES = { ...REASONS, ...PORTAL_REASONS };

export interface ErrorBody {
  error: { code: ErrorCode; message: string; details: ErrorDetails };
}

/** An error of the contract, which the HTTP API turns into the error body. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetails;
  readonly status: ErrorStatus;

  /** @param status one of the code's statuses; defaults to the usual one. */
  constructor(
    code: ErrorCode,
    details: ErrorDetails = {},
    status: ErrorStatus = ERRORS[code].statuses[0],
  ) {
    super(details.reason ? MESSAGES[details.reason] : ERRORS[code].message);
    this.name = "ApiError";
    this.code = code;
    this.details = details;
    this.status = status;
  }

  toBody(): ErrorBody {
    return { error: { code: this.code, message: this.message, details: this.details } };
  }
}
