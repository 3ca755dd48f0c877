// Calls a quotad that answers and closes each connection before it reads: turned.mjs CLIENT SOCKET. It reads a line when
// the connection is closed.
import { readSync } from "node:fs";
const [client, socket] = process.argv.slice(2);
const { Client } = await import(client);

const call = new Client(socket).acquire("p").catch((e) => console.log(`${e.constructor.name}: ${e.message}`));
readSync(0, Buffer.alloc(1)); // the call has connected, and is not written before the next turn
await call;
process.exit();
