"""Forwards a port of the host's loopback to the API server in the ring's network namespace.

usage: python3 port_forward.py PORT_FILE NETWORK_PID HOST PORT
Listens on a free port of 127.0.0.1 (in the namespace in which it was started), writes its number to PORT_FILE, then
enters the network namespace of NETWORK_PID and connects from there.
"""
import ctypes
import os
import socket
import sys
import threading


def copy(source, target):
    """Copies one direction. Passes the end of the stream on, so that a half-closed connection ends in order."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def join(client, server):
    """Copies both directions until both have ended."""
    with client, server:
        back = threading.Thread(target=copy, args=(server, client), daemon=True)
        back.start()
        copy(client, server)
        back.join()


def serve(client, address):
    try:
        server = socket.create_connection(address, timeout=5)
    except OSError:
        client.close()
        return
    server.settimeout(None)
    join(client, server)


def main():
    port_file, pid, host, port = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    with open(port_file + ".unfinished", "w", encoding="ascii") as out:
        out.write(str(listener.getsockname()[1]))
    os.rename(port_file + ".unfinished", port_file)
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) != 0:
        sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, (host, port)), daemon=True).start()


if __name__ == "__main__":
    main()
