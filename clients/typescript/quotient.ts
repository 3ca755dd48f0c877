// Permits from quotad for Node.js 20 and later, without dependencies.
//
//   const quotad = new Client();
//   await quotad.acquire("payments/charge", { timeout: 1 }); // or Limited
//
//   const batch = await quotad.acquire("payments/charge", { permits: 100, timeout: 1, partial: true });
//   while (batch.take()) await charge(); // costs no call
//   await batch.close();
//
// Times are in seconds.
import { once } from "node:events";
import { accessSync, constants, readFileSync, statSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { isIP, Socket, type NetConnectOpts } from "node:net";
import { userInfo } from "node:os";
import { dirname, resolve } from "node:path";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { createSecureContext, type SecureContext, type SecureContextOptions } from "node:tls";
import { getSystemErrorMap, inspect } from "node:util";

/** No permit in time. retryAfter is the time until there may be one. */
export class Limited extends Error {
  static {
    this.prototype.name = "Limited"; // for logs
  }
  retryAfter = 0;
}

/** No quotad answers. It is thrown at once if there is no socket at the path, and was none before, and by settle; otherwise after the timeout, as quotad may be restarting. */
export class Unavailable extends Limited {
  static {
    this.prototype.name = "Unavailable";
  }
}

/** A call that would fail again, such as one with a wrong argument or certificate, or by a user who may not use the socket. */
export class Refused extends Error {
  static {
    this.prototype.name = "Refused";
  }
}

/** The provider has no limit, or none by key: nobody has set it yet, or etcd has lost it. Once an operator has set it the same call succeeds. */
export class NoLimit extends Refused {
  static {
    this.prototype.name = "NoLimit";
  }
}

/** Permits of one provider, or of a key of it. */
export type Permits = Awaited<ReturnType<Client["acquire"]>>;

/** What a call for several providers got. */
export type Granted = Awaited<ReturnType<Client["acquireAll"]>>;

/** Permits of a provider, or of a key of it; 1 by default. */
export type Want = { provider: string; permits?: number; key?: string };

/** The authority of quotad's certificate, and a certificate of this client with its key: what PEM files hold, not their names. */
export type TLS = { ca: Pem; cert: Pem; key: Pem };
type Pem = string | Uint8Array; // such as a Buffer, whose type a program would need from @types/node

/** Calls of a higher class are served first. */
export type Class = "critical" | "default" | "sheddable";

/** What every call may say. */
type Options = { timeout?: number; class?: Class; label?: string; settleWithin?: number };
const ofAll = ["timeout", "class", "label", "settleWithin"];

/** Throws Refused for what would be ignored: an option that there is not, or a number in place of options. */
function refuseOthers(options: object, ...known: string[]): void {
  if (options === null) throw new Refused(`options is null: leave it out, or pass an object, such as { ${known[0]}: 1 }`);
  if (typeof options !== "object") throw new Refused(`${options} is no option: name it, as in { ${known[0]}: ${options} }`);
  for (const name of Object.keys(options)) if (!known.includes(name)) throw new Refused(`there is no option ${name}: there are ${known.join(", ")}`);
}

/** Throws Refused for a timeout that is no time. */
function refuseTime(timeout: unknown): void {
  if (typeof timeout !== "number" || Number.isNaN(timeout)) throw new Refused(`timeout is ${inspect(timeout)}: must be a number of seconds; 0 does not wait`);
}

/** Throws Refused for what is no number of things. */
function refuseCount(name: string, n: unknown): void {
  if (!Number.isInteger(n) || (n as number) < 1) throw new Refused(`${name} is ${inspect(n)}: must be a whole number from 1`);
}

/** Has JSON.stringify write a number that JSON has not, such as NaN, by its name: quotad refuses that, and names the argument and its bounds. */
const number = (_: string, value: unknown): unknown => (typeof value === "bigint" ? Number(value) : typeof value === "number" && !Number.isFinite(value) ? String(value) : value);

type Answer = { id?: string; permits?: number; until?: string; expires_in?: number; ends_in?: number; detail?: string; retry_after?: number; absent?: boolean; wrong?: boolean };

/** How many bytes the path has at most at which quotad serves. */
const longest = 105;

/** In place of a status. */
const noAnswer = 0;

/** The answers to settle after which there is no ID: 409 and 422 have settled a part, and without an answer nobody knows. After others nothing was settled, and the cost can be corrected. */
const settled = [200, 409, 422, noAnswer];
const stands = "the reservation stands as the cost, unless quotad settled it and could not say so";

/** Returns the error that an answer means, whatever was called: Limited, as others may get what this call did not, Unavailable, or Refused. None is what 404 means. */
function refusal(status: number, { detail, retry_after: retryAfter = 0, wrong }: Answer, None = Refused): Limited | Refused {
  if (status === noAnswer && !wrong) return Object.assign(new Unavailable(detail), { retryAfter: 1 }); // a daemon takes longer to start than the next try here
  if (status === 429 || status === 503) return Object.assign(new Limited(detail), { retryAfter });
  return new (status === 404 ? None : Refused)(detail);
}

/** Says why TLS failed, and what to change, as time does not heal it; undefined if TLS did not fail. */
function mistrust(address: string, host: string, { code = "", message, reason }: NodeJS.ErrnoException & { reason?: string }): string | undefined {
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID")
    return `the certificate of quotad at ${address} does not name ${host}: issue its --tls-cert with subjectAltName=${isIP(host) ? "IP" : "DNS"}:${host}, or pass an address that it names`;
  if (!/^ERR_(SSL|TLS)_|^EPROTO$/.test(code)) // what OpenSSL says of a chain has codes of its own
    return /CERT|SIGNATURE|CA$|PURPOSE/.test(code) ? `the certificate of quotad at ${address} is not valid here (${message}): pass the authority of its --tls-cert as ca, or issue that anew if it has expired` : undefined;
  const said = reason ?? /SSL routines:\w*:([^:]+)/.exec(message)?.[1] ?? message; // an EPROTO has no reason
  if (/protocol.version/i.test(code + message)) return `quotad at ${address} speaks TLS 1.3 only (${said}): start Node.js without --tls-max-v1.2, in NODE_OPTIONS too`;
  if (/alert/i.test(code + message))
    return `quotad at ${address} takes no connection without a certificate that its --tls-client-ca has issued (${said}): pass that one as cert, and its key`;
  return `no TLS at ${address} (${said}): pass the address of quotad's --listen`;
}

/** Returns what a function does, or undefined if it throws. */
function attempt<T>(f: () => T): T | undefined {
  try {
    return f();
  } catch {
    return undefined;
  }
}

/** Returns the folders that a path goes through, from the root on. */
const parents = (path: string): string[] => (dirname(path) === path ? [] : [...parents(dirname(path)), dirname(path)]);

/** Says who may use the socket, which this user may not, and what to change: time does not heal it. */
function denied(address: string): string {
  const user = attempt(() => userInfo().username) ?? process.geteuid?.();
  const folders = parents(resolve(address));
  const folder = folders.find((f) => !attempt(() => (accessSync(f, constants.X_OK), true)));
  const of = attempt(() => statSync(folder ?? address));
  const group = of?.gid;
  if (folder && of && (group === 0 || !(of.mode & constants.S_IXGRP))) // else a member of its group may enter it
    return `the user ${user} may not enter ${folder}, in which quotad's socket ${address} is: give it a group of that user, and mode 0750`;
  const name = attempt(() => new RegExp(`^([^:]+):[^:]*:${group}:`, "m").exec(readFileSync("/etc/group", "utf8"))?.[1]) ?? group;
  let remedy = `add it to the group of the socket${name === undefined ? "" : `, ${name}`}, and start this program again`;
  if (group === 0) remedy = "start quotad with --group, and a group of that user"; // whoever joins that may do more than use the socket
  return `the user ${user} may not use quotad's socket ${address}: ${remedy}`;
}

type Done = (error?: Error | null) => void;

/** Reads on where a write finds the connection closed: if quotad has refused it, it has said why before. */
class Patient extends Socket {
  private reading = (done: Done): Done => (e) => done((e as NodeJS.ErrnoException | null)?.code === "EPIPE" ? null : e);
  override _write(chunk: unknown, encoding: BufferEncoding, done: Done): void {
    super._write(chunk, encoding, this.reading(done));
  }
  override _writev(chunks: { chunk: unknown; encoding: BufferEncoding }[], done: Done): void {
    super._writev!(chunks, this.reading(done));
  }
}

/** Connects to a socket by Patient. */
class PatientAgent extends http.Agent {
  override createConnection(options: NetConnectOpts) {
    return new Patient(options).connect(options);
  }
}

type Instant = { mono: number; wall: number };

/** Both clocks: the monotonic one stands still while the machine sleeps. */
const now = (): Instant => ({ mono: performance.now() / 1000, wall: Date.now() / 1000 });
const since = (t: Instant): number => Math.max(now().mono - t.mono, now().wall - t.wall);

/** Says that an answer took so many seconds, and that its permits were good for fewer. */
function tooLate(took: number, good: number): string {
  const text = (s: number) => String(Number(s.toPrecision(3)));
  return (
    `quotad's answer took ${text(took)} s, and its permits were good for ${text(good)} s: no call was made by them. ` +
    "Ask again; if this repeats, find what slows quotad or this program down"
  );
}

/** The seconds from now within which a call in flight must be over. */
const endsIn = ({ ends_in: ends }: Answer, sent: Instant): number | undefined => (ends === undefined ? undefined : Math.max(0, ends - since(sent)));

/** Returns what TLS needs, or throws Refused. */
function contextOf(tls: TLS): SecureContext {
  try {
    return createSecureContext(tls as SecureContextOptions);
  } catch (e) {
    throw new Refused(`tls: ${(e as Error).message}: ca, cert and key are what PEM files hold, as readFileSync("ca.pem") returns it, and the key is that of cert`);
  }
}

export class Client {
  private options: https.RequestOptions;
  private http: typeof http | typeof https;
  private address: string;
  private host: string;
  private answered = false;
  private most: number;
  /** Has connections for calls that wait for permits; connection() says when one is free. */
  private waiting: http.Agent;
  /** How many calls have one of these. */
  private asking = 0;
  /** Calls that wait for one, in order. */
  private queue: (() => void)[] = [];
  /** Has connections for calls that wait for no permits: those with timeout 0, and those that end or are settled. */
  private prompt: http.Agent;
  /** The address is the path of quotad's socket or, with tls, that of --listen, such as 127.0.0.1:8787. At most so many calls (connections, 64) wait for permits at a time, a connection each, and others wait for one of these. Calls that do not wait, and those that settle or end a call, have 16 more. quotad allows a process 256 connections. */
  constructor(address = "/run/quotad/quotad.sock", options: { tls?: TLS; connections?: number } = {}) {
    refuseOthers(options, "connections", "tls");
    const { tls, connections = 64 } = options;
    refuseCount("connections", connections);
    if (typeof address !== "string" || !address) throw new Refused(`the address is ${inspect(address)}: must be the path of quotad's socket, or host:port with the option tls`);
    const isPort = /^[^/]+:\d+$/.test(address);
    if (tls && !isPort) throw new Refused(`the address is ${address}: with tls it is host:port, as quotad's --listen, such as 127.0.0.1:8787`);
    if (!tls && (isPort || address.includes("://"))) throw new Refused(`the address is ${address}: without tls it is the path of a socket; host:port needs the option tls`);
    if (!tls && Buffer.byteLength(address) > longest) throw new Refused(`the address is ${address}: it has ${Buffer.byteLength(address)} bytes, and the path of a socket has at most ${longest}`);
    this.address = address;
    this.most = connections;
    this.http = tls ? https : http;
    const Agent = tls ? https.Agent : PatientAgent;
    this.waiting = new Agent({ keepAlive: true });
    this.prompt = new Agent({ keepAlive: true, maxSockets: 16 });
    const colon = address.lastIndexOf(":");
    this.host = address.slice(0, colon).replace(/^\[|\]$/g, "");
    this.options = { ...(tls ? { secureContext: contextOf(tls), host: this.host, port: address.slice(colon + 1) } : { socketPath: address }), headers: { "Content-Type": "application/json" } };
  }

  /** Returns permits, or throws Limited, Unavailable or Refused. A key, such as an account, has limits of its own; a label, such as a job, is for operators to see. With partial they are at most so many, at least 1. With settleWithin, in seconds, their cost can be settled until then. Without either, none can be given back. */
  async acquire(provider: string, options: { permits?: number; partial?: boolean; key?: string } & Options = {}) {
    refuseOthers(options, "permits", "partial", "key", ...ofAll);
    const { permits: n = 1, timeout = 0, class: of = "default", label = "", key = "", partial = false, settleWithin } = options;
    refuseTime(timeout);
    const { answer, sent } = await this.grant({ provider, permits: n, key, partial, class: of, label, settle_within: settleWithin }, timeout);
    const permits = answer.permits!;
    const isOver = () => since(sent) >= answer.expires_in!;
    const settle = this.settlement(answer);
    const end = this.ending(answer);
    const named = answer.id !== undefined;
    let left = permits;
    return {
      permits,
      until: answer.until!,
      /** Under a limit in flight: the seconds from now within which the call must be over. */
      get endsIn() {
        return endsIn(answer, sent);
      },
      /** Uses permits; false if too few are left, they are settled, or their window is over. Throws Refused for what is no number of permits. */
      take: (n = 1): boolean => {
        refuseCount("permits", n);
        if ((named && !answer.id) || n > left || isOver()) return false;
        left -= n;
        return true;
      },
      /** States what the calls cost, once: less gives permits back, 0 gives all back, and more is a debt. It needs settleWithin, or partial. Throws Refused if the number is wrong: then settle again with the right one; or if the time for that is over, and Unavailable if no quotad answers: then the reservation stands as the cost. */
      settle: (...used: [used: number]): Promise<void> => settle(used),
      /** Gives back what take has not used, while the window of the permits lasts: always with partial; with settleWithin if take has used some, and if not, the reservation stands as the cost; and nothing without either, or after settle. Under a limit in flight it ends all calls, which count until then. Settle before. */
      close: async (): Promise<void> => {
        const used = permits - left;
        left = 0;
        const inFlight = answer.ends_in !== undefined;
        const late = settleWithin !== undefined;
        const known = !inFlight && (used > 0 || !late);
        if (answer.id && known && used < permits && !isOver()) await settle([used]).catch(() => undefined); // the rest is lost
        else if (inFlight || late) await end(); // the ID of a batch ends soon
      },
    };
  }

  /** Takes permits of several providers, all or none, or throws Limited. */
  async acquireAll(wants: Want[], options: Options = {}) {
    refuseOthers(options, ...ofAll);
    const { timeout = 0, class: of = "default", label = "", settleWithin } = options;
    refuseTime(timeout);
    if (!Array.isArray(wants)) throw new Refused(`wants is ${inspect(wants)}: must be a list, such as [{ provider: "payments/charge", permits: 1 }]`);
    const { answer, sent } = await this.grant({ wants, class: of, label, settle_within: settleWithin }, timeout);
    const settle = this.settlement(answer);
    return {
      /** The end of the window of the permits, of the first that ends. */
      until: answer.until!,
      /** Of limits in flight: see Permits. */
      get endsIn() {
        return endsIn(answer, sent);
      },
      /** Ends the calls of limits in flight, which count until then. Nothing else comes back: without settle the reservation stands as the cost. Settle before. */
      close: this.ending(answer),
      /** States what the calls cost, a number for each want, once: see Permits. */
      settle: (...used: number[]): Promise<void> => settle(used),
    };
  }

  private settlement(answer: Answer) {
    let gone = "there is no ID to settle by: ask with settleWithin"; // why there is no ID
    if (answer.id) gone = "these permits were settled before, or given back or ended by close: settle once, and before close";
    return async (used: number[]): Promise<void> => {
      const id = answer.id;
      if (!id) throw new Refused(gone);
      answer.id = undefined;
      const { status, answer: said } = await this.send(`/v1/permits/${id}/settle`, { used });
      if (!settled.includes(status)) answer.id = id;
      if (status === noAnswer) {
        gone = `quotad did not answer when these permits were settled: ${stands}`;
        said.detail += `; ${stands}`;
      }
      if (status !== 200) throw refusal(status, said);
    };
  }

  private ending = (answer: Answer) => async (): Promise<void> => {
    const id = answer.id;
    if (!id) return;
    answer.id = undefined;
    await this.send(`/v1/calls/${id}`); // without an answer it ends by itself
  };

  private async grant(body: object, timeout: number) {
    const waits = timeout > 0;
    const began = now();
    for (let first = true; ; first = false) {
      if (waits && !(await this.connection(timeout - since(began)))) {
        const detail = `no connection was free in time: ${this.most} calls are under way, the most of this client that may wait for permits; pass new Client(address, { connections: ${2 * this.most} })`;
        throw Object.assign(new Limited(detail), { retryAfter: 0.05 });
      }
      const max_wait = Math.max(0, Math.min(60, timeout - since(began)));
      const asked = this.send("/v1/acquire", { ...body, max_wait }, max_wait, waits ? this.waiting : this.prompt);
      const { status, answer, sent } = await (waits ? asked.finally(() => this.passOn()) : asked);
      const took = since(sent);
      if (status === 200 && took < answer.expires_in!) return { answer, sent };
      if (status === 200 && first) continue; // their window has ended, and the next one may have permits
      const error = status === 200 ? refusal(503, { detail: tooLate(took, answer.expires_in!) }) : refusal(status, answer, NoLimit);
      const left = timeout - since(began);
      let retryAfter = answer.retry_after ?? 0;
      if (status === 503 && retryAfter <= 1) retryAfter = Math.min(retryAfter, left); // nobody knows when, as while the provider is paused: ask a last time at the end
      if (!(error instanceof Limited) || answer.absent || !(retryAfter >= 0 && retryAfter <= left)) throw error;
      await sleep(Math.min(retryAfter, 3600) * 1000); // a timer of 25 days would fire at once
    }
  }

  /** Waits at most so many seconds for a connection to wait for permits. Returns false if none is free by then. */
  private connection(most: number): Promise<boolean> {
    if (this.asking < this.most) {
      this.asking++;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const turn = () => (clearTimeout(timer), resolve(true));
      const timer = setTimeout(() => ((this.queue = this.queue.filter((t) => t !== turn)), resolve(false)), Math.min(Math.max(0, most), 1e6) * 1000);
      this.queue.push(turn);
    });
  }

  /** Passes a connection on to the next call that waits for one. */
  private passOn(): void {
    const next = this.queue.shift();
    if (next) next();
    else this.asking--;
  }

  /** Sends a POST, or a DELETE without a body. Returns the status and the body of the answer, noAnswer if there is none within wait and 10 s. */
  private async send(path: string, body?: object, wait = 0, agent = this.prompt): Promise<{ status: number; answer: Answer; sent: Instant }> {
    let sent = now();
    const signal = AbortSignal.timeout(Math.ceil(wait + 10) * 1000); // also without a free connection
    const request = this.http.request({ ...this.options, agent, method: body ? "POST" : "DELETE", path, signal });
    let connected = false;
    let free = false;
    request.on("socket", (socket) => {
      free = true;
      sent = now();
      connected = !socket.connecting;
      if (!connected) socket.once(this.http === https ? "secureConnect" : "connect", () => (connected = true));
    });
    request.on("error", () => undefined);
    request.end(body && JSON.stringify(body, number));
    try {
      const [response] = (await once(request, "response")) as [http.IncomingMessage];
      const answer = (await json(response)) as Answer;
      this.answered = true;
      return { status: response.statusCode!, answer, sent };
    } catch (e) {
      if (request.reusedSocket && !signal.aborted && !(e instanceof SyntaxError)) return this.send(path, body, wait, agent); // quotad closes connections without calls
      const { code = "", errno = 0, message } = e as NodeJS.ErrnoException;
      if (signal.aborted && connected) return { status: noAnswer, answer: { detail: `quotad at ${this.address} accepts connections, but does not answer: see its log, or restart it`, retry_after: 0.05 }, sent };
      if (signal.aborted && !free) return { status: noAnswer, answer: { detail: `no connection to quotad at ${this.address} was free within 10 s: see its log, or make fewer calls at a time`, retry_after: 0.05 }, sent };
      const detail = this.http === https && mistrust(this.address, this.host, e as Error);
      if (detail) return { status: noAnswer, answer: { detail, wrong: true }, sent };
      if (code === "EACCES" && this.http === http) return { status: noAnswer, answer: { detail: denied(this.address), wrong: !this.answered, retry_after: 0.05 }, sent };
      const start = this.http === https ? "start it with --listen, or pass its address" : "start it, or pass new Client(path)";
      const help = this.answered ? "it answered before: see whether it runs, and its log" : start;
      const cause = getSystemErrorMap().get(errno)?.[1] ?? message;
      const absent = !this.answered && ["ENOENT", "ENOTDIR"].includes(code); // else it restarts
      return { status: noAnswer, answer: { detail: `no quotad at ${this.address} (${cause}): ${help}`, retry_after: 0.05, absent }, sent };
    }
  }
}
