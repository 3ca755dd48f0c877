# Permits from quotad for asyncio, with the standard library only.
#
#     quotad = quotient.aio.Client()
#     await quotad.acquire("payments/charge", timeout=1)  # or quotient.Limited
#
#     async with await quotad.acquire("payments/charge", 100, timeout=1, partial=True) as permits:
#         while permits.take():  # costs no call
#             await charge()
#
# A client is for one event loop. Its calls run at the same time. Times are in seconds.

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterable
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Literal

import quotient
from quotient import ANSWERED, NO_ANSWER, again_in, body_of, check, costs_of, deadline_of, host_of, now, refuse_count, text_of, unanswered

if TYPE_CHECKING:
    from typing_extensions import Self

    from quotient import Want

Class = Literal["critical", "default", "sheddable"]


PROMPT = 16  # connections for calls that wait for no permits: those with timeout 0, and those that end or are settled


async def free(connections: asyncio.Semaphore, most: float) -> bool:
    """Takes a free connection, for which it waits so many seconds at most. Returns False if none was free."""
    try:
        await (asyncio.wait_for(connections.acquire(), max(0.0, most)) if connections.locked() else connections.acquire())
    except asyncio.TimeoutError:
        return False
    return True


class Patient(asyncio.StreamReader):
    """Ends where the connection is reset. A reader of asyncio drops what quotad has said before."""

    def set_exception(self, exc: BaseException) -> None:
        self.feed_eof()


class Client:
    """Address and tls are those of quotient.Client. At most so many calls wait for permits at a time, a
    connection each, and others wait for one of these. Calls that do not wait, and those that settle or end a
    call, have 16 more. quotad allows a process 256 connections."""

    def __init__(self, address: str = "/run/quotad/quotad.sock", tls: SSLContext | None = None, connections: int = 64) -> None:
        refuse_count("connections", connections)
        self.address, self.tls, self.connections = check(address, tls), tls, connections
        self.idle: list[Any] = []
        self.loop: asyncio.AbstractEventLoop | None = None  # of its calls
        self.waiting: asyncio.Semaphore  # free connections for calls that wait for permits
        self.prompt: asyncio.Semaphore  # and for the others

    async def acquire(
        self, provider: str, permits: int = 1, timeout: float = 0, class_: Class = "default", label: str = "", key: str = "", partial: bool = False, settle_within: float | None = None
    ) -> Permits:
        """Returns Permits, or raises Limited, Unavailable or Refused. A key, such as an account, has limits of its own;
        a label, such as a job, is for operators to see.
        With partial they are at most so many, at least 1. With settle_within, in seconds, their
        cost can be settled until then. Without either, none can be given back."""
        return Permits(self, quotient.Permits(None, *await self._grant([(provider, permits, key)], timeout, class_, label, partial, settle_within), settle_within is not None))

    async def acquire_all(self, wants: Iterable[Want], timeout: float = 0, class_: Class = "default", label: str = "", settle_within: float | None = None) -> Granted:
        """Takes permits of several providers, all or none: each of wants is (provider, permits)
        or (provider, permits, key)."""
        return Granted(self, quotient.Granted(None, *await self._grant(list(wants), timeout, class_, label, False, settle_within)))

    async def close(self) -> None:
        """Closes the connections without a call."""
        while self.idle:
            self.idle.pop()[1].close()

    async def _grant(self, wants: list[Want], timeout: float, class_: str, label: str, partial: bool, settle_within: float | None) -> tuple[dict[str, Any], float]:
        deadline, first = deadline_of(wants, timeout), True
        self._enter()
        while True:
            if timeout <= 0:
                status, answer, sent = await self._ask("/v1/acquire", body_of(wants, 0, class_, label, partial, settle_within))
            else:
                if not await free(self.waiting, deadline - now()):
                    raise quotient.Limited(f"no connection was free in time: {self.connections} calls are under way, the most of this client that may wait for permits; pass quotient.aio.Client(connections=...)", 0.05)
                try:
                    wait = max(0.0, min(60.0, deadline - now()))
                    status, answer, sent = await self._send("/v1/acquire", body_of(wants, wait, class_, label, partial, settle_within), wait)
                finally:
                    self.waiting.release()
            retry = again_in(status, answer, sent, deadline, first)
            if retry is None:
                return answer, sent
            first = False
            await asyncio.sleep(retry)

    def _enter(self) -> None:
        """Binds the client to the event loop of its first call. Raises Refused in another one."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop, self.waiting, self.prompt = loop, asyncio.Semaphore(self.connections), asyncio.Semaphore(PROMPT)
        if self.loop is not loop:
            raise quotient.Refused("this client is in use by another event loop: make one in each loop, as in each call of asyncio.run")

    async def _connect(self, message: bytes) -> Any:
        """Connects, and sends a message."""
        if self.tls:
            reader, writer = await asyncio.open_connection(*host_of(self.address), ssl=self.tls)
            writer.write(message)
            return reader, writer
        loop, sock = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, self.address)
            with contextlib.suppress(ConnectionError):  # if quotad has refused the connection, it has said why, and closed it: a stream would not read that
                await loop.sock_sendall(sock, message)
            reader = Patient(loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.create_unix_connection(lambda: protocol, sock=sock)
            return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        except BaseException:
            sock.close()
            raise

    async def _ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any], float]:
        """Sends what waits for no permits."""
        self._enter()
        if not await free(self.prompt, 10):
            return NO_ANSWER, {"detail": f"no connection to quotad at {self.address} was free within 10 s: see its log, or make fewer calls at a time", "retry_after": 0.05}, now()
        try:
            return await self._send(path, body)
        finally:
            self.prompt.release()

    async def _send(self, path: str, body: dict[str, Any] | None = None, wait: float = 0) -> tuple[int, dict[str, Any], float]:
        """Sends a POST, or a DELETE without a body. Returns the status and the body of the answer, NO_ANSWER if there is none within wait
        and 10 s, and when the call was sent."""
        text = b"" if body is None else text_of(body).encode()
        method = "DELETE" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: quotad\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        message = head.encode() + text
        problem: dict[str, Any] = {}
        for connect in not self.idle, True:  # quotad closes connections without calls
            writer = None
            accepted = not connect
            sent = now()
            try:
                if connect:
                    reader, writer = await asyncio.wait_for(self._connect(message), 10)
                    accepted = True
                else:
                    reader, writer = self.idle.pop()
                    writer.write(message)
                status, answer, keep = await asyncio.wait_for(self._answer(reader), wait + 10)
                ANSWERED.add(self.address)
                if keep:
                    self.idle.append((reader, writer))
                    writer = None
                return status, answer, sent
            except asyncio.TimeoutError as e:
                problem = unanswered(self.address, e, self.tls, accepted)
                break
            except (OSError, EOFError, ValueError, KeyError, asyncio.LimitOverrunError) as e:
                problem = unanswered(self.address, e, self.tls, False)
            finally:
                if writer is not None:  # also if the task is cancelled: the call leaves the queue
                    writer.close()
        return NO_ANSWER, problem, sent

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, Any], bool]:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(fields["content-length"]))
        return int(first.split()[1]), json.loads(body), fields.get("connection", "").lower() != "close"


class Granted:
    """What a call got, for the tasks of one event loop. Under a limit in flight the call counts until close,
    which leaving an async with block is too."""

    def __init__(self, client: Client, of: quotient.Granted) -> None:
        self._client, self._of = client, of

    @property
    def until(self) -> str:
        """The end of the window of the permits, of the first that ends."""
        return self._of.until

    @property
    def ends_in(self) -> float | None:
        """The seconds from now within which the call must be over, under a limit in flight; otherwise None."""
        return self._of.ends_in

    async def settle(self, *used: int) -> None:
        """States what the calls cost, one number for each want, once: less gives permits back,
        0 gives all back, and more is a debt. It needs settle_within, or partial. Raises Refused if a number is wrong:
        then settle again with the right ones; or if the time for that is over, and Unavailable if no
        quotad answers: then the reservation stands as the cost."""
        of = self._of.begin_settling()
        status, answer, _ = await self._client._ask(f"/v1/permits/{of}/settle", costs_of(used))
        self._of.end_settling(of, status, answer)

    async def close(self) -> None:
        """Ends the calls of limits in flight. Nothing else comes back: without settle the reservation stands as the
        cost. Settle before."""
        of, self._of.id = self._of.id, None
        if of:
            await self._client._ask(f"/v1/calls/{of}")  # without an answer it ends by itself

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Permits(Granted):
    """Permits of one provider, or of a key of it."""

    _of: quotient.Permits

    @property
    def permits(self) -> int:
        """How many they are."""
        return self._of.permits

    def take(self, permits: int = 1) -> bool:
        """Uses permits; False if too few are left, they are settled, or their window is over. Raises Refused for what
        is no number of permits."""
        return self._of.take(permits)

    async def close(self) -> None:
        """Gives back what take has not used, while the window of the permits lasts: always with partial; with
        settle_within if take has used some, and if not, the reservation stands as the cost; and nothing without
        either, or after settle. Under a limit in flight it ends all calls. Settle before."""
        used = self._of.end_taking()
        if used is not None:
            with contextlib.suppress(quotient.Limited, quotient.Refused):  # the rest is lost
                await self.settle(used)
        elif self.ends_in is not None or self._of.settles:  # the ID of a batch ends soon
            await super().close()
