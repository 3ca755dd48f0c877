"""Calls a quotad that answers and closes each connection before it reads: turned.py threads|tasks SOCKET. It reads a line for each connection that is closed."""

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
    connect = loop.sock_connect

    async def late(*args):
        await connect(*args)
        sys.stdin.readline()

    loop.sock_connect = late
    await quotient.aio.Client(socket).acquire("p")


try:
    Late(socket).acquire("p") if how == "threads" else asyncio.run(call())
except quotient.Limited as e:
    print(f"{type(e).__name__}: {e}")
