// Makes calls in flight, until it is killed: flight.mjs CLIENT SOCKET HOST:PORT CALLERS.
const [script, socket, address, callers] = process.argv.slice(2);
const { Client, Limited } = await import(script);
const quotad = new Client(socket);

async function work() {
  for (;;) {
    let call;
    try {
      call = await quotad.acquire("calls", { timeout: 5 });
    } catch (e) {
      if (!(e instanceof Limited)) throw e;
      continue;
    }
    try {
      // A call takes a second at most.
      if (call.endsIn > 5) await (await fetch(`http://${address}/node`)).arrayBuffer();
    } finally {
      await call.close();
    }
  }
}

await Promise.all(Array.from({ length: Number(callers) }, work));
