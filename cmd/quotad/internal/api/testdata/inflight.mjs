// Checks that calls in flight end: inflight.mjs CLIENT SOCKET, of providers p and q with 3 inflight hold=4s.
import assert from "node:assert/strict";

const [script, socket] = process.argv.slice(2);
const { Client, Limited } = await import(script);
const quotad = new Client(socket);
const free = async (want) => {
  const got = await quotad.acquire("p", { permits: 3, timeout: 60, partial: true });
  assert.equal(got.permits, want);
  assert(got.take(want));
  await got.close();
};

const call = await quotad.acquire("p", { timeout: 60 });
try {
  assert(call.endsIn >= 4 && call.endsIn <= 65.1, `${call.endsIn}`);
  const both = await quotad.acquireAll([{ provider: "p" }, { provider: "q", permits: 2 }]);
  assert(both.endsIn >= 4);
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
const narrow = new Client(socket, 5); // more calls than connections, all of which wait
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
await assert.rejects(narrow.acquire("p", { timeout: 0.01 }), (e) => e instanceof Limited && /5 calls wait for permits already/.test(e.message));
await held.close();
for (const call of waiting) await (await call).close();
process.exit();
