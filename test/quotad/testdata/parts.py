"""Prints the end of each permit's window: parts.py ADDRESS CALLERS [asyncio | CA CERT KEY]."""

import asyncio
import ssl
import sys
import threading

import quotient
import quotient.aio


def say(permits):
    sys.stdout.write(permits.until + "\n")  # in one piece
    sys.stdout.flush()


def work(quotad):
    while True:
        say(quotad.acquire("p", timeout=60))


async def tasks(quotad, callers):
    async def task():
        while True:
            say(await quotad.acquire("p", timeout=60))

    await asyncio.gather(*(task() for _ in range(callers)))


socket, callers = sys.argv[1], int(sys.argv[2])
tls = None
if len(sys.argv) > 4:
    ca, cert, key = sys.argv[3:]
    tls = ssl.create_default_context(cafile=ca)
    tls.load_cert_chain(cert, key)
elif len(sys.argv) > 3:
    asyncio.run(tasks(quotient.aio.Client(socket), callers))
client = quotient.Client(socket, tls)
for _ in range(callers):
    threading.Thread(target=work, args=(client,)).start()
