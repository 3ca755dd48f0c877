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
import * as http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

/** No permit in time. retryAfter is the time until there may be one. */
export class Limited extends Error {
  retryAfter: number;
  constructor(detail: string, retryAfter: number) {
    super(detail);
    this.retryAfter = retryAfter;
  }
}

/** A call that would fail again: an unknown provider, or a wrong argument. */
export class Refused extends Error {}

type Answer = { lease?: string; permits?: number; until?: string; expires_in?: number; detail?: string; retry_after?: number };
type Instant = { mono: number; wall: number };

/** Both clocks: the monotonic one stands still while the machine sleeps. */
const now = (): Instant => ({ mono: performance.now() / 1000, wall: Date.now() / 1000 });
const since = (t: Instant): number => Math.max(now().mono - t.mono, now().wall - t.wall);

export class Client {
  private socketPath: string;
  private agent: http.Agent;
  /** At most so many calls run at a time; quotad allows a process 256. */
  constructor(socketPath = "/run/quotad/quotad.sock", maxSockets = 64) {
    this.socketPath = socketPath;
    this.agent = new http.Agent({ keepAlive: true, maxSockets });
  }

  /** Returns the end of the window of the permits, as text, or throws Limited. */
  async acquire(provider: string, { permits = 1, timeout = 0 } = {}): Promise<string> {
    return (await this.grant("/v1/acquire", provider, permits, timeout)).answer.until!;
  }

  /** Returns a lease of at most so many permits, at least 1, or throws Limited. */
  async lease(provider: string, permits: number, { timeout = 0 } = {}): Promise<Lease> {
    const { answer, sent } = await this.grant("/v1/leases", provider, permits, timeout);
    return new Lease(this, answer, sent);
  }

  private async grant(path: string, provider: string, permits: number, timeout: number) {
    for (const began = now(); ; ) {
      const max_wait = Math.max(0, Math.min(60, timeout - since(began)));
      const { status, answer, sent } = await this.post(path, { provider, permits, max_wait }).catch((e) => ({
        sent: began, status: 503, answer: { detail: `quotad at ${this.socketPath}: ${e}`, retry_after: 0.05 } as Answer, // it restarts
      }));
      if (status === 200 && since(sent) < answer.expires_in!) return { answer, sent };
      if (![200, 429, 503].includes(status)) throw new Refused(answer.detail);
      const retry = answer.retry_after ?? 0;
      if (status !== 200 && since(began) + retry > timeout) throw new Limited(answer.detail!, retry);
      await sleep(retry * 1000);
    }
  }

  /** For Lease. */
  post(path: string, body: object): Promise<{ status: number; answer: Answer; sent: Instant }> {
    return new Promise((resolve, reject) => {
      let sent = now(); // when a connection is free
      const request = http.request({
        socketPath: this.socketPath, agent: this.agent, path, method: "POST", timeout: 70_000,
        headers: { "Content-Type": "application/json" },
      }, (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (part: string) => (text += part)).on("error", reject).on("end", () => {
          try {
            resolve({ status: response.statusCode!, answer: JSON.parse(text), sent });
          } catch (e) {
            reject(e);
          }
        });
      });
      request.on("socket", () => (sent = now())).on("timeout", () => request.destroy(new Error("no answer")));
      request.on("error", (e) => {
        if (request.reusedSocket) this.post(path, body).then(resolve, reject); // quotad closes connections without calls
        else reject(e);
      });
      request.end(JSON.stringify(body));
    });
  }
}

/** Permits of one window. */
export class Lease {
  readonly permits: number;
  readonly until: string;
  private used = 0;
  private client: Client;
  private answer: Answer;
  private sent: Instant;
  constructor(client: Client, answer: Answer, sent: Instant) {
    [this.client, this.answer, this.sent] = [client, answer, sent];
    [this.permits, this.until] = [answer.permits!, answer.until!];
  }

  /** Uses permits; false if too few are left, or their window is over. */
  take(permits = 1): boolean {
    if (this.used + permits > this.permits || since(this.sent) >= this.answer.expires_in!) return false;
    this.used += permits;
    return true;
  }

  /** Gives back what was not used, and ends the lease. */
  async close(): Promise<void> {
    const used = this.used;
    this.used = this.permits;
    if (used === this.permits || since(this.sent) >= this.answer.expires_in!) return;
    await this.client.post(`/v1/leases/${this.answer.lease}/return`, { used }).catch(() => undefined); // the rest is lost at the window's end
  }
}
