// Prints the end of each permit's window: parts.mjs CLIENT SOCKET CALLERS.
const [client, socket, callers] = process.argv.slice(2);
const { Client } = await import(client);
const quotad = new Client(socket);

const work = async () => {
  for (;;) process.stdout.write((await quotad.acquire("p", { timeout: 60 })).until + "\n");
};
await Promise.all(Array.from({ length: +callers }, work));
