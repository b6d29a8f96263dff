import { parse } from "./json.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** A problem document (RFC 9457) with the members that its kind has, or what a gateway sends instead. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  [member: string]: unknown;
}

/**
 * A rejection, or a failure. `kind` is the last part of the problem's stable `type`, such as `conflict`; `status` the HTTP status, 0
 * if no answer came; `problem` the whole document.
 */
export class NameserviceError extends Error {
  readonly kind: string;

  constructor(
    readonly status: number,
    readonly problem: Problem,
    options?: ErrorOptions,
  ) {
    super(problem.detail ?? problem.title ?? (problem["message"] as string | undefined) ?? `status ${status}`, options);
    this.name = new.target.name;
    this.kind = (problem.type ?? "").split("/").at(-1) ?? "";
  }
}

/** Certainly not written: another value than the expected one is stored. `actual` is that value, null if there is no record. */
export class Conflict<Value = unknown> extends NameserviceError {
  get actual(): Value | null {
    return (this.problem["actual"] as Value | undefined) ?? null;
  }
}

/** Certainly nothing was written; `results` has the outcome of each operation. */
export class TransactionRejected extends NameserviceError {
  get results(): Schemas["OperationResult"][] {
    return (this.problem["results"] as Schemas["OperationResult"][] | undefined) ?? [];
  }
}

/** A record with this address exists. */
export class AlreadyExists extends NameserviceError {}

/** There is no such record, or none that the token covers. */
export class UnknownRecord extends NameserviceError {}

/** The record is retracted: restore it first. */
export class Retracted extends NameserviceError {}

/** Other records depend on this one; `dependents` are their addresses. */
export class HasDependents extends NameserviceError {
  get dependents(): string[] {
    return (this.problem["dependents"] as string[] | undefined) ?? [];
  }
}

/** Another holder has a lease of this record; `lease` shows it. */
export class LeaseHeld extends NameserviceError {
  get lease(): Schemas["Lease"] | null {
    return (this.problem["lease"] as Schemas["Lease"] | undefined) ?? null;
  }
}

/** The lease is no longer held under this token: stop the work that it protects. */
export class LeaseLost extends NameserviceError {}

/** The token is missing, not valid, or does not allow this. */
export class NotAllowed extends NameserviceError {}

/**
 * The feed does not continue from this place: begin again with a snapshot. `oldest` is the first position that it holds; `reason` is
 * `trimmed` if it no longer holds what follows, `other-history` if the place is of another history, such as one ahead of a restored
 * backup, and `ahead` if the position is beyond its end.
 */
export class PositionExpired extends NameserviceError {
  get oldest(): number | null {
    return (this.problem["oldest"] as number | undefined) ?? null;
  }

  get reason(): string {
    return (this.problem["reason"] as string | undefined) ?? (this.kind === "position-ahead" ? "ahead" : "trimmed");
  }
}

/** What is stored is older than `min_position`, `min_t` or `min_v` asked for. */
export class NotYet extends NameserviceError {}

/** Certainly not written: the service, or what is behind it, is not available. */
export class Unavailable extends NameserviceError {}

/** The write may or may not have been applied: read the record, or repeat the call with the same `Idempotency-Key`, `idempotencyKey`. */
export class OutcomeUnknown extends NameserviceError {
  get idempotencyKey(): string | null {
    return (this.problem["idempotency_key"] as string | undefined) ?? null;
  }
}

const KINDS: Record<string, typeof NameserviceError> = {
  conflict: Conflict,
  "transaction-refused": TransactionRejected,
  "already-exists": AlreadyExists,
  "unknown-record": UnknownRecord,
  "unknown-source": UnknownRecord,
  retracted: Retracted,
  "has-dependents": HasDependents,
  "lease-held": LeaseHeld,
  "lease-lost": LeaseLost,
  unauthorized: NotAllowed,
  "insufficient-scope": NotAllowed,
  "address-not-covered": NotAllowed,
  expired: PositionExpired,
  "position-ahead": PositionExpired,
  "not-yet": NotYet,
  unavailable: Unavailable,
  "feed-unavailable": Unavailable,
  "outcome-unknown": OutcomeUnknown,
};

const STATUSES: Record<number, typeof NameserviceError> = { 401: NotAllowed, 403: NotAllowed, 429: Unavailable };

/** Returns the error for a rejection. A gateway's own rejections are no problem documents. */
export function errorOf(status: number, problem: Problem): NameserviceError {
  const kind = (problem.type ?? "").split("/").at(-1) ?? "";
  return new (KINDS[kind] ?? STATUSES[status] ?? NameserviceError)(status, problem);
}

/** Reads the problem document of an answer, whatever its body is. */
export async function errorFrom(response: Response): Promise<NameserviceError> {
  const text = await response.text();
  try {
    const problem = parse(text);
    if (problem !== null && typeof problem === "object") return errorOf(response.status, problem as Problem);
  } catch {
    // Not JSON: an answer of something in front of the service.
  }
  return errorOf(response.status, { detail: text.slice(0, 500) });
}
