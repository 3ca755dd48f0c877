// Checks what comes back by close, and after a settlement that is refused: block.mjs CLIENT SOCKET, of providers p and q
// with 1000 permits.
import assert from "node:assert/strict";
import { get } from "node:http";
import { json } from "node:stream/consumers";

const [script, socket] = process.argv.slice(2);
const { Client, Refused } = await import(script);
const quotad = new Client(socket);

/** Returns how many permits of a provider are left. */
const left = async (of) => {
  const answer = await new Promise((done, failed) => get({ socketPath: socket, path: `/v1/providers/${of}` }, done).on("error", failed));
  return (await json(answer)).limits[0].left;
};
const refused = (text) => (e) => e instanceof Refused && e.message.includes(text);

/** Plays again what fails because its second ended: permits of the hour are good until then, and a client that gets them
    later asks for others. */
const inASecond = async (play) => {
  for (let n = 0; n < 10; n++) {
    const second = Math.floor(Date.now() / 1000);
    try {
      return await play();
    } catch (e) {
      if (!(e instanceof assert.AssertionError) || second === Math.floor(Date.now() / 1000)) throw e;
    }
  }
  throw new Error("no second was long enough");
};

await quotad.acquire("q", { timeout: 60 }); // it is open from now on
for (const [options, take, settles, used] of [
  [{}, 0, undefined, 3],
  [{}, 1, undefined, 3],
  [{ partial: true }, 0, undefined, 0],
  [{ partial: true }, 2, undefined, 2],
  [{ settleWithin: 60 }, 0, undefined, 3],
  [{ settleWithin: 60 }, 2, undefined, 2],
  [{ settleWithin: 60 }, 0, 0, 0],
  [{ settleWithin: 60 }, 2, 1, 1],
  [{ settleWithin: 60, partial: true }, 0, undefined, 3],
  [{ settleWithin: 60, partial: true }, 2, undefined, 2],
  [{ settleWithin: 60, partial: true }, 1, 2, 2],
]) {
  await inASecond(async () => {
    const before = await left("p");
    const got = await quotad.acquire("p", { permits: 3, timeout: 60, ...options });
    assert(take === 0 || got.take(take));
    if (settles !== undefined) {
      await got.settle(settles);
      assert(!got.take(), "what is settled can be taken");
    }
    await got.close();
    await got.close();
    assert(!got.take(), "after close");
    assert.equal(before - (await left("p")), used, JSON.stringify([options, take, settles]));
  });
}
for (const options of [{}, { settleWithin: 60 }]) {
  await inASecond(async () => {
    const before = [await left("p"), await left("q")];
    const both = await quotad.acquireAll([{ provider: "p", permits: 2 }, { provider: "q", permits: 3 }], { timeout: 60, ...options });
    await both.close();
    assert.deepEqual([before[0] - (await left("p")), before[1] - (await left("q"))], [2, 3], JSON.stringify(options));
  });
}

// After close there is no ID: a process may have fewer.
for (let n = 0; n < 60; n++) {
  await (await quotad.acquire("q", { timeout: 60, settleWithin: 60 })).close();
  await (await quotad.acquireAll([{ provider: "q" }], { timeout: 60, settleWithin: 60 })).close();
}

// A settlement that is refused can be corrected.
await inASecond(async () => {
  const before = [await left("p"), await left("q")];
  const both = await quotad.acquireAll([{ provider: "p", permits: 2 }, { provider: "q", permits: 3 }], { timeout: 60, settleWithin: 60 });
  await assert.rejects(both.settle(1), refused("used has 1 numbers: must have 2"));
  await assert.rejects(both.settle(1, -1), refused("used is -1"));
  await assert.rejects(both.settle(1, undefined), refused("used: null given, must be a whole number"));
  for (const [wrong, given] of [[NaN, '"NaN"'], [-Infinity, '"-Infinity"'], [1e30, "1e+30"], [10n ** 30n, "1e+30"]])
    await assert.rejects(both.settle(1, wrong), refused(`used: ${given} given, must be a whole number from 0 to 1000000000000`));
  await both.settle(1, 0n);
  await assert.rejects(both.settle(1, 0), refused("were settled before"));
  const one = await quotad.acquire("p", { permits: 3, timeout: 60, settleWithin: 60 });
  assert(one.take());
  await one.settle(2);
  const late = await quotad.acquire("p", { permits: 3, timeout: 60, settleWithin: 60 });
  await late.close();
  await assert.rejects(late.settle(0), refused("settle once, and before close"));
  const batch = await quotad.acquire("p", { permits: 3, timeout: 60, partial: true });
  await assert.rejects(batch.settle(-1), refused("used is -1"));
  await batch.close();
  assert.deepEqual([before[0] - (await left("p")), before[1] - (await left("q"))], [6, 0]);
  const none = await quotad.acquire("p", { timeout: 60 });
  await assert.rejects(none.settle(1), refused("no ID to settle by: ask with settleWithin"));
  assert(none.take());
});

// What is no number of permits to take is named, and nothing is lost by it.
await inASecond(async () => {
  const before = await left("p");
  const batch = await quotad.acquire("p", { permits: 3, timeout: 60, partial: true });
  for (const [wrong, given] of [[1.5, "1.5"], [0, "0"], [-1, "-1"], [NaN, "NaN"], [Infinity, "Infinity"], [true, "true"], ["2", "'2'"], [null, "null"], [2n, "2n"]])
    assert.throws(() => batch.take(wrong), (e) => e instanceof Refused && e.message === `permits is ${given}: must be a whole number from 1`);
  assert(batch.take() && !batch.take(3), "what was refused is taken");
  await batch.close();
  assert.equal(before - (await left("p")), 1, "what was not taken has not come back");
});

// An argument that is no number, or one that nobody can mean: the argument, the value and the bounds are named.
for (const [permits, given] of [[NaN, '"NaN"'], [Infinity, '"Infinity"'], [1e19, "10000000000000000000"]])
  await assert.rejects(quotad.acquire("q", { permits }), refused(`permits: ${given} given, must be a whole number from 1 to 1000000000000`));
for (const [settleWithin, given] of [[NaN, '"NaN"'], [Infinity, '"Infinity"'], [null, "null"]])
  await assert.rejects(quotad.acquire("q", { settleWithin }), refused(`settle_within: ${given} given, must be a number of seconds from 0 to 120`));
await assert.rejects(quotad.acquire("q", { key: 1n }), refused("key: number given, must be a text"));
assert.equal((await quotad.acquire("q", { permits: 3n, timeout: 60 })).permits, 3);
for (const wants of [null, { provider: "q" }]) await assert.rejects(quotad.acquireAll(wants), refused("must be a list, such as [{ provider: "));
process.exit();
