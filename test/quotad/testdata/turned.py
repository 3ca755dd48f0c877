"""Calls a quotad that answers and closes each connection before it reads: turned.py threads|tasks|reset SOCKET; with reset it has read a part. It reads a line for each connection that is closed."""

import asyncio
import sys

import quotient
import quotient.aio

how, socket = sys.argv[1:]


class Late(quotient.Client):
    def connect(self):
        super().connect()
        sys.stdin.readline()


async def call():
    loop = asyncio.get_running_loop()
    name = "sock_connect" if how == "tasks" else "sock_sendall"
    step, create = getattr(loop, name), loop.create_unix_connection

    async def late(*args):
        await step(*args)
        sys.stdin.readline()

    async def reset(*args, **named):
        transport, protocol = await create(*args, **named)
        while not transport.is_closing():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return transport, protocol

    setattr(loop, name, late)
    if how == "reset":
        loop.create_unix_connection = reset
    await quotient.aio.Client(socket).acquire("p")


try:
    Late(socket).acquire("p") if how == "threads" else asyncio.run(call())
except quotient.Limited as e:
    print(f"{type(e).__name__}: {e}")
