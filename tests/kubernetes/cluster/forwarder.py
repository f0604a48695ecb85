"""forwarder.py LISTENER HOST PORT: the API server of a cell, on 127.0.0.1 of the host.

The listening socket was opened on the host and is inherited; this process lives in the cell, so what it
dials is inside. A socket belongs to the network namespace that it was made in: nothing else is needed to
join the two, no interface and no route.
"""

import asyncio
import socket
import sys


async def pump(reader, writer):
    """One direction, until its end; the other goes on, as TCP allows. A reset is passed on as one."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def serve(listener, host, port):
    async def join(reader, writer):
        others = [writer]
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
            others.append(inner_writer)
            await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
        except OSError:
            writer.transport.abort()  # a reset is what a client of a dead server sees
        finally:
            for other in others:
                other.close()

    server = await asyncio.start_server(join, sock=listener)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
