// Checks how the client takes refusals and a restart: answers.mjs CLIENT SOCKET.
import assert from "node:assert";
import { once } from "node:events";
const [client, socket] = process.argv.slice(2);
const { Client, Limited, Refused } = await import(client);
const quotad = new Client(socket);

const refusal = async () => {
  while (await quotad.acquire("few"));
};
await assert.rejects(refusal, (e) => e instanceof Limited && e.retryAfter > 0 && e.retryAfter <= 60 && !/quotad at/.test(e.message));
await quotad.acquire("keyed", { key: "node", timeout: 60 });
await assert.rejects(async () => {
  while (await quotad.acquire("keyed", { key: "node" }));
}, (e) => e instanceof Limited && /key "node"/.test(e.message));
assert.equal((await quotad.lease("keyed", 9, { key: "other of node", timeout: 60 })).permits, 2);
for (const [provider, permits, reason] of [["few", 1000, /split the call/], ["unknown", 1, /unknown provider/]])
  await assert.rejects(quotad.acquire(provider, { permits, timeout: 60 }), (e) => e instanceof Refused && reason.test(e.message));
const lease = await quotad.lease("p", 10, { timeout: 5 });
assert(lease.take());

console.log("quotad may be restarted");
await once(process.stdin, "data");
await lease.close();
assert(!lease.take());
await quotad.acquire("p", { timeout: 60 });
process.exit();
