// Calls the provider with permits, until it is killed: worker.mjs CLIENT SOCKET HOST:PORT.
const [client, socket, address] = process.argv.slice(2);
const { Client, Limited } = await import(client);
const quotad = new Client(socket);

const call = async (until) => {
  const answer = await fetch(`http://${address}/`, { headers: { Until: until, By: "quotad" } });
  await answer.arrayBuffer();
};

async function work(batches) {
  for (;;) {
    try {
      if (!batches) {
        await call((await quotad.acquire("p", { timeout: 5 })).until);
        continue;
      }
      const batch = await quotad.acquire("p", { permits: 20, timeout: 5, partial: true });
      for (let n = 0; n < 12 && batch.take(); n++) await call(batch.until);
      await batch.close(); // the others are given back
    } catch (e) {
      if (!(e instanceof Limited)) throw e;
    }
  }
}

await Promise.all([work(true), work(false), work(false), work(false)]);
