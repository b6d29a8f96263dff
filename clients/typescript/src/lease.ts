import type { components } from "./schema.js";
import { LeaseLost, NameserviceError } from "./errors.js";

type Schemas = components["schemas"];
type Take = (body: Schemas["Wanted"], signal: AbortSignal, wait?: number) => Promise<Schemas["Held"]>;

export interface LeaseOptions {
  /** Who holds it; by default a name of this process and call. */
  holder?: string;
  /** How many seconds it lasts without a refresh; 300 by default. */
  ttlSeconds?: number;
  /** The `t` that the holder works towards, for others to see. */
  targetT?: number;
  /** How many seconds to wait for another holder, at most 20. */
  wait?: number;
}

/** A lease, refreshed at a third of its duration while the callback of `withLease` runs. */
export class Lease {
  #token = 0;
  #deadline = 0;
  #expiry: NodeJS.Timeout | undefined;
  #refresh: NodeJS.Timeout | undefined;
  readonly #lost = new AbortController();
  /** Ends a request in flight with the lease, which would keep the process and lose what is no longer held. */
  readonly #ended = new AbortController();

  /** @internal */
  constructor(
    private readonly take: Take,
    private readonly address: string,
    readonly name: string,
    readonly holder: string,
    private readonly options: LeaseOptions,
  ) {}

  /** The fencing token: it grows with every holder. */
  get token(): number {
    return this.#token;
  }

  /** The claim that a push carries, so that it is rejected once the lease is lost. */
  get claim(): Schemas["Claim"] {
    return { name: this.name, holder: this.holder, token: this.#token };
  }

  /** Aborted once the lease is lost, or its deadline has passed without a refresh. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Throws `LeaseLost` if the lease is lost. */
  check(): void {
    if (performance.now() >= this.#deadline) this.#lose();
    this.#lost.signal.throwIfAborted();
  }

  /** @internal */
  async acquire(): Promise<void> {
    await this.#ask(undefined);
    // It is unknown when a wait for the lease ended. A refresh begins a term whose start is known.
    if (this.options.wait) await this.#ask(this.#token);
    this.#schedule();
  }

  /** @internal */
  end(): void {
    this.#ended.abort();
    clearTimeout(this.#expiry);
    clearTimeout(this.#refresh);
  }

  get #milliseconds(): number {
    return (this.options.ttlSeconds ?? 300) * 1000;
  }

  async #ask(token: number | undefined): Promise<void> {
    // The deadline counts from before the request, on a monotonic clock.
    const asked = performance.now();
    const held = await this.take(
      {
        name: this.name,
        holder: this.holder,
        ttl_seconds: this.#milliseconds / 1000,
        ...(token === undefined ? {} : { token }),
        ...(this.options.targetT === undefined ? {} : { target_t: this.options.targetT }),
      },
      this.#ended.signal,
      token === undefined ? this.options.wait : undefined,
    );
    this.#token = held.token;
    if (this.#ended.signal.aborted) return;
    this.#deadline = asked + this.#milliseconds;
    clearTimeout(this.#expiry);
    this.#expiry = setTimeout(() => this.#lose(), this.#deadline - performance.now());
  }

  #schedule(): void {
    if (this.#ended.signal.aborted) return;
    this.#refresh = setTimeout(() => {
      this.#ask(this.#token).then(
        () => this.#schedule(),
        (error: unknown) => {
          if (this.#ended.signal.aborted) return;
          const final = error instanceof LeaseLost || (error instanceof NameserviceError && [401, 403, 404, 410].includes(error.status));
          // Any other failure may be transient: the deadline decides.
          if (final) this.#lose(error);
          else if (!this.#lost.signal.aborted) this.#schedule();
        },
      );
    }, this.#milliseconds / 3);
  }

  #lose(cause?: unknown): void {
    this.end();
    const problem = { type: "/lease-lost", detail: `${this.name} of ${this.address} is lost` };
    this.#lost.abort(new LeaseLost(409, problem, { cause }));
  }
}
