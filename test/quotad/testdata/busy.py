"""Makes calls that wait on all connections that may, and then others: busy.py SOCKET."""

import asyncio
import sys

import quotient.aio


async def main():
    quotad = quotient.aio.Client(sys.argv[1])
    waiting = [asyncio.ensure_future(quotad.acquire("p", timeout=60)) for _ in range(64)]
    all = await asyncio.gather(*(quotad.acquire("p", settle_within=60) for _ in range(200)))
    print(f"{len(all)} calls did not wait", flush=True)
    await all[0].settle(1)
    try:
        await quotad.acquire("p", timeout=0.1)
    except quotient.Limited as e:
        print(f"{type(e).__name__}: {e}")
    if any(call.done() for call in waiting):
        print("one does not wait any more")
    for call in waiting:
        call.cancel()


asyncio.run(main())
