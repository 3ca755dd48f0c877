// Makes calls that wait on all connections that may, and then others: busy.mjs CLIENT SOCKET.
const [client, socket] = process.argv.slice(2);
const { Client } = await import(client);
const quotad = new Client(socket);

for (let i = 0; i < 64; i++) quotad.acquire("p", { timeout: 60 }).finally(() => console.log("one does not wait any more"));
const all = await Promise.all(Array.from({ length: 200 }, () => quotad.acquire("p", { settleWithin: 60 })));
console.log(`${all.length} calls did not wait`);
await all[0].settle(1);
await quotad.acquire("p", { timeout: 0.1 }).catch((e) => console.log(`${e.constructor.name}: ${e.message}`));
process.exit();
