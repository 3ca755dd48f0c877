// Permits from quotad for Node.js 20 and later, without dependencies.
//
//   const quotad = new Client();
//   await quotad.acquire("payments/charge", { timeout: 1 }); // or Limited
//
//   const lease = await quotad.lease("payments/charge", 100, { timeout: 1 });
//   while (lease.take()) await charge();
//   await lease.close();
//
// Times are in seconds.
import { once } from "node:events";
import * as http from "node:http";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

/** No permit in time. retryAfter is the time until there may be one. */
export class Limited extends Error {
  retryAfter = 0;
}

/** A call that would fail again: an unknown provider, or a wrong argument. */
export class Refused extends Error {}

/** Permits of one window. */
export type Lease = Awaited<ReturnType<Client["lease"]>>;

/** Calls of a higher class are served first. */
export type Class = "critical" | "default" | "sheddable";

type Answer = { lease?: string; permits?: number; until?: string; expires_in?: number; detail?: string; retry_after?: number };
type Instant = { mono: number; wall: number };

/** Both clocks: the monotonic one stands still while the machine sleeps. */
const now = (): Instant => ({ mono: performance.now() / 1000, wall: Date.now() / 1000 });
const since = (t: Instant): number => Math.max(now().mono - t.mono, now().wall - t.wall);

export class Client {
  private options: http.RequestOptions;
  /** At most so many calls run at a time; quotad allows a process 256. */
  constructor(socketPath = "/run/quotad/quotad.sock", maxSockets = 64) {
    const agent = new http.Agent({ keepAlive: true, maxSockets });
    this.options = { socketPath, agent, method: "POST", headers: { "Content-Type": "application/json" } };
  }

  /** Returns the end of the window of the permits, as text, or throws Limited. A key, such as an account, has limits of its own; "" is none. */
  async acquire(provider: string, { permits = 1, timeout = 0, class: of = "default" as Class, key = "" } = {}): Promise<string> {
    return (await this.grant("/v1/acquire", provider, permits, timeout, of, key)).answer.until!;
  }

  /** Returns a lease of at most so many permits, at least 1, or throws Limited. */
  async lease(provider: string, most: number, { timeout = 0, class: of = "default" as Class, key = "" } = {}) {
    const { answer, sent } = await this.grant("/v1/leases", provider, most, timeout, of, key);
    const permits = answer.permits!;
    const isOver = () => since(sent) >= answer.expires_in!;
    let left = permits;
    return {
      permits,
      until: answer.until!,
      /** Uses permits; false if too few are left, or their window is over. */
      take: (n = 1): boolean => {
        if (!(n > 0 && n <= left) || isOver()) return false;
        left -= n;
        return true;
      },
      /** Gives back what was not used, and ends the lease. */
      close: async (): Promise<void> => {
        const used = permits - left;
        left = 0;
        if (used < permits && !isOver()) await this.post(`/v1/leases/${answer.lease}/return`, { used }); // or the rest is lost
      },
    };
  }

  private async grant(path: string, provider: string, permits: number, timeout: number, of: Class, key: string) {
    for (const began = now(); ; ) {
      const max_wait = Math.max(0, Math.min(60, timeout - since(began)));
      const { status, answer, sent } = await this.post(path, { provider, permits, max_wait, class: of, key }, max_wait);
      if (status === 200 && since(sent) < answer.expires_in!) return { answer, sent };
      if (![200, 429, 503].includes(status)) throw new Refused(answer.detail);
      const retryAfter = answer.retry_after ?? 0;
      if (!(since(began) + retryAfter <= timeout)) throw Object.assign(new Limited(answer.detail ?? "the answer came too late"), { retryAfter });
      await sleep(Math.min(retryAfter, 3600) * 1000); // a timer of 25 days would fire at once
    }
  }

  /** Returns the status and the body of the answer, 503 if there is none within wait and 10 s. */
  private async post(path: string, body: object, wait = 0): Promise<{ status: number; answer: Answer; sent: Instant }> {
    let sent = now();
    const signal = AbortSignal.timeout(Math.ceil(wait + 10) * 1000); // also without a free connection
    const request = http.request({ ...this.options, path, signal });
    request.on("socket", () => (sent = now())).on("error", () => undefined); // a connection is free
    request.end(JSON.stringify(body));
    try {
      const [response] = (await once(request, "response")) as [http.IncomingMessage];
      return { status: response.statusCode!, answer: (await json(response)) as Answer, sent };
    } catch (e) {
      if (request.reusedSocket && !signal.aborted && !(e instanceof SyntaxError)) return this.post(path, body, wait); // quotad closes connections without calls
      return { status: 503, answer: { detail: `quotad at ${this.options.socketPath}: ${e}`, retry_after: 0.05 }, sent }; // it restarts
    }
  }
}
