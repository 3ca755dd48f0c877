// Calls the provider with permits, until it is killed: worker.mjs CLIENT SOCKET HOST:PORT.
const [client, socket, address] = process.argv.slice(2);
const { Client, Limited } = await import(client);
const quotad = new Client(socket);

const call = async (until) => {
  const answer = await fetch(`http://${address}/`, { headers: { Until: until, By: "quotad" } });
  await answer.arrayBuffer();
};

async function work(leases) {
  for (;;) {
    try {
      if (!leases) {
        await call(await quotad.acquire("p", { timeout: 5 }));
        continue;
      }
      const lease = await quotad.lease("p", 20, { timeout: 5 });
      for (let n = 0; n < 12 && lease.take(); n++) await call(lease.until);
      await lease.close(); // the others are given back
    } catch (e) {
      if (!(e instanceof Limited)) throw e;
    }
  }
}

await Promise.all([work(true), work(false), work(false), work(false)]);
