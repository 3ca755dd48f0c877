// Checks how the client takes refusals and a restart: answers.mjs CLIENT SOCKET.
import assert from "node:assert";
import { once } from "node:events";
const [client, socket] = process.argv.slice(2);
const { Client, Limited, NoLimit, Refused, Unavailable } = await import(client);
const quotad = new Client(socket);

const refusal = async () => {
  while (await quotad.acquire("few"));
};
await assert.rejects(refusal, (e) => e instanceof Limited && e.retryAfter > 0 && e.retryAfter <= 60 && !(e instanceof Unavailable));
await quotad.acquire("keyed", { key: "node", timeout: 60 });
await assert.rejects(async () => {
  while (await quotad.acquire("keyed", { key: "node" }));
}, (e) => e instanceof Limited && /key "node"/.test(e.message));
assert.equal((await quotad.acquire("keyed", { permits: 9, key: "other of node", timeout: 60, partial: true })).permits, 2);

// All or nothing, and settled late, with a provider of 4 an hour.
const wants = [{ provider: "node" }, { provider: "p" }];
const all = await quotad.acquireAll([{ ...wants[0], permits: 4 }, wants[1]], { timeout: 60, settleWithin: 60 });
await assert.rejects(quotad.acquireAll(wants), (e) => e instanceof Limited && /node/.test(e.message));
await all.settle(1, 1);
await assert.rejects(all.settle(1, 1), Refused);
const three = await quotad.acquire("node", { permits: 3, timeout: 60, settleWithin: 60, class: "critical", label: "reindex" });
await assert.rejects(quotad.acquireAll(wants), Limited);
await assert.rejects(three.settle(0, 0), (e) => e instanceof Refused && /used has 2 numbers/.test(e.message));
await three.settle(0);
await quotad.acquireAll(wants, { timeout: 60 });
for (const call of [() => quotad.acquire("p", { label: "\n" }), () => quotad.acquireAll(wants, { label: "\n" })])
  await assert.rejects(call, (e) => e instanceof Refused && /label/.test(e.message));
await assert.rejects((await quotad.acquire("p", { timeout: 60 })).settle(1), Refused);
for (const ignored of [async () => new Client(socket, null), () => quotad.acquire("p", null), () => quotad.acquire("p", 600), () => quotad.acquire("p", { max_wait: 6 }), () => quotad.acquireAll(wants, { partial: true })])
  await assert.rejects(ignored, (e) => e instanceof Refused && /option/.test(e.message));
if (process.argv[4]) {
  const { readFileSync } = await import("node:fs");
  const [ca, cert, key] = process.argv.slice(5).map((name) => readFileSync(name));
  assert.equal((await new Client(process.argv[4], { connections: 1, tls: { ca, cert, key } }).acquire("p", { timeout: 60 })).permits, 1);
}
for (const [provider, permits, reason, kind] of [["few", 1000, /split the call/, Refused], ["unknown", 1, /no limit is set for/, NoLimit]])
  await assert.rejects(quotad.acquire(provider, { permits, timeout: 60 }), (e) => e.constructor === kind && reason.test(e.message));
const batch = await quotad.acquire("p", { permits: 10, timeout: 5, partial: true });
assert(batch.take());

console.log("quotad may be restarted");
await once(process.stdin, "data");
await batch.close();
assert(!batch.take());
await quotad.acquire("p", { timeout: 60 });
process.exit();
