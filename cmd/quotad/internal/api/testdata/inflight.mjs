// Checks that calls in flight end: inflight.mjs CLIENT SOCKET, of providers p and q with 3 inflight hold=4s.
import assert from "node:assert/strict";

const [script, socket] = process.argv.slice(2);
const { Client, Limited, Refused } = await import(script);
const quotad = new Client(socket);
const free = async (want) => {
  const got = await quotad.acquire("p", { permits: 3, timeout: 60, partial: true });
  assert.equal(got.permits, want);
  assert(got.take(want));
  await got.close();
};

/** Checks for how long a call may last that was asked for at a time: for its hold, and an eighth of that. */
const lasts = (call, asked) => {
  const left = call.endsIn;
  assert(left <= 4.51 && left + (performance.now() - asked) / 1000 >= 3.99, `${left}`);
};

let asked = performance.now();
const call = await quotad.acquire("p", { timeout: 60 });
try {
  lasts(call, asked);
  const both = await quotad.acquireAll([{ provider: "p" }, { provider: "q", permits: 2 }]);
  lasts(both, asked);
  await free(1);
  await both.close();
  await both.close();
  await free(2);
  await assert.rejects(quotad.acquire("p", { permits: 3 }), (e) => e instanceof Limited && /inflight/.test(e.message) && e.retryAfter === 1);
} finally {
  await call.close();
}
await free(3);
const settled = await quotad.acquireAll([{ provider: "p", permits: 3 }, { provider: "q" }], { settleWithin: 9 });
await settled.settle(1, 1);
await settled.close();
await free(3);
const wrong = await quotad.acquireAll([{ provider: "p" }, { provider: "q" }], { settleWithin: 9 });
await assert.rejects(wrong.settle(1), Refused); // it ends no call
await free(2);
await wrong.close();
await free(3);
const narrow = new Client(socket, { connections: 5 }); // more calls than connections, all of which wait
const began = performance.now();
const two = async () => {
  const call = await narrow.acquire("p", { timeout: 30 });
  await new Promise((done) => setTimeout(done, 10));
  await call.close();
};
await Promise.all(Array.from({ length: 50 }, two));
assert(performance.now() - began < 4000, "calls ended by their hold");
const held = await narrow.acquire("p", { permits: 3 });
const waiting = Array.from({ length: 5 }, () => narrow.acquire("p", { timeout: 30 }));
await assert.rejects(narrow.acquire("p", { timeout: 0.01 }), (e) => e instanceof Limited && /5 calls are under way/.test(e.message));
await held.close();
for (const call of waiting) await (await call).close();
const forgotten = await quotad.acquire("p", { permits: 3, timeout: 60 });
asked = performance.now();
const late = await quotad.acquire("p", { timeout: 60 });
assert(performance.now() - asked > 3900, `${performance.now() - asked}`);
lasts(late, asked); // from now, although the call has waited
await new Promise((done) => setTimeout(done, 1000 * forgotten.endsIn + 10));
assert.equal(forgotten.endsIn, 0);
process.exit();
