# Permits from quotad for asyncio, with the standard library only.
#
#     quotad = quotient.aio.Client()
#     await quotad.acquire("payments/charge", timeout=1)  # or quotient.Limited
#
#     async with await quotad.lease("payments/charge", 100, timeout=1) as lease:
#         while lease.take():
#             await charge()
#
# A client is for one event loop. Its calls run at the same time. Times are in seconds.

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import quotient
from quotient import again_in, now

Class = Literal["critical", "default", "sheddable"]


class Client:
    """At most so many calls run at a time; quotad allows a process 256 connections."""

    def __init__(self, socket: str = "/run/quotad/quotad.sock", connections: int = 64) -> None:
        self.path, self.connections = socket, connections
        self.idle: list[Any] = []
        self.free: asyncio.Semaphore | None = None

    async def acquire(self, provider: str, permits: int = 1, timeout: float = 0, class_: Class = "default", key: str = "") -> str:
        """Returns the end of the window of the permits, as text, or raises Limited.
        A key, such as an account, has limits of its own; "" is none."""
        answer, _ = await self._grant("/v1/acquire", provider, permits, timeout, class_, key)
        return str(answer["until"])

    async def lease(self, provider: str, permits: int, timeout: float = 0, class_: Class = "default", key: str = "") -> Lease:
        """Returns a Lease of at most so many permits, at least 1, or raises Limited."""
        return Lease(self, *await self._grant("/v1/leases", provider, permits, timeout, class_, key))

    async def close(self) -> None:
        """Closes the connections without a call."""
        while self.idle:
            self.idle.pop()[1].close()

    async def _grant(self, path: str, provider: str, permits: int, timeout: float, class_: str, key: str) -> tuple[dict[str, Any], float]:
        deadline = now() + timeout
        while True:
            wait = max(0.0, min(60.0, deadline - now()))
            call = {"provider": provider, "permits": permits, "max_wait": wait, "class": class_, "key": key}
            status, answer, sent = await self._post(path, call, wait)
            end = sent + answer.get("expires_in", 0)
            retry = again_in(status, answer, end, deadline)
            if retry is None:
                return answer, end
            await asyncio.sleep(retry)

    async def _post(self, path: str, body: dict[str, Any], wait: float = 0) -> tuple[int, dict[str, Any], float]:
        """Returns the status and the body of the answer, 503 if there is none within wait and
        10 s, and when the call was sent."""
        if self.free is None:
            self.free = asyncio.Semaphore(self.connections)
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: quotad\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        async with self.free:
            sent, problem = now(), ""
            for connect in not self.idle, True:  # quotad closes connections without calls
                writer = None
                try:
                    if connect:
                        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(self.path), 10)
                    else:
                        reader, writer = self.idle.pop()
                    sent = now()
                    writer.write(head.encode() + text)
                    status, answer, keep = await asyncio.wait_for(self._answer(reader), wait + 10)
                    if keep:
                        self.idle.append((reader, writer))
                        writer = None
                    return status, answer, sent
                except asyncio.TimeoutError as e:
                    problem = f"quotad at {self.path}: {e!r}"
                    break
                except (OSError, EOFError, ValueError, KeyError, asyncio.LimitOverrunError) as e:
                    problem = f"quotad at {self.path}: {e!r}"
                finally:
                    if writer is not None:  # also if the task is cancelled: the call leaves the queue
                        writer.close()
        return 503, {"detail": problem, "retry_after": 0.05}, sent  # it restarts

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, Any], bool]:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(fields["content-length"]))
        return int(first.split()[1]), json.loads(body), fields.get("connection", "").lower() != "close"


class Lease:
    """Permits of one window, for the tasks of one event loop."""

    def __init__(self, client: Client, answer: dict[str, Any], end: float) -> None:
        self._client, self._id, self._lease = client, answer["lease"], quotient.Lease(None, answer, end)

    @property
    def permits(self) -> int:
        """The permits of the lease."""
        return self._lease.permits

    @property
    def until(self) -> str:
        """The end of the window of the permits."""
        return self._lease.until

    def take(self, permits: int = 1) -> bool:
        """Uses permits; False if too few are left, or their window is over."""
        return self._lease.take(permits)

    async def close(self) -> None:
        """Gives back what was not used, and ends the lease."""
        lease = self._lease
        used, lease.used = lease.used, lease.permits
        if used < lease.permits and now() < lease.end:
            await self._client._post(f"/v1/leases/{self._id}/return", {"used": used})  # or the rest is lost

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
