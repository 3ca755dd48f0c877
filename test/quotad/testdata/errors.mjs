// Prints which errors calls throw: errors.mjs CLIENT ADDRESS [CA [CERT KEY]].
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
const [script, address, ...files] = process.argv.slice(2);
const { Client, Limited, Refused } = await import(script);
const [ca, cert, key] = files.map((name) => readFileSync(name));

// Returns what a call does, or prints the error.
const ends = async (call) => {
  try {
    return await call();
  } catch (e) {
    if (!(e instanceof Limited || e instanceof Refused)) throw e;
    console.log(String(e));
  }
};

const client = await ends(() => new Client(address, ca && { tls: { ca, cert, key } }));
if (client && !ca) {
  for (const none of [null, "", address + "x".repeat(100)]) await ends(() => new Client(none));
  for (const connections of [0, -1, NaN]) await ends(() => new Client(address, { connections }));
  for (const timeout of [null, "5", NaN]) await ends(() => client.acquire("p", { timeout }));
  await ends(() => client.acquireAll({ provider: "p" }));
  await ends(() => client.acquire("p", { permits: "5" }));
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (let n = 0; n < 4; n++) { // quotad does not know the first ID, has no time for the second, and books a part of the third
    const got = await ends(() => client.acquire("p", { settleWithin: 60 }));
    const batch = await ends(() => client.acquire("p", { permits: 2, partial: true }));
    console.log("has permits");
    await lines.next();
    await ends(() => got.settle(1));
    await ends(() => got.settle(1));
    await ends(() => batch.close());
  }
} else if (client) {
  const got = await ends(() => client.acquire("p", { timeout: 3600 }));
  if (got) console.log(`${got.permits} permit`);
}
process.exit();
