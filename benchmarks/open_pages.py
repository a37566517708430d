"""Pages that are open, in a process of their own: each reads all that a board sends it.

::

    python benchmarks/open_pages.py PORT PAGES

opens them as the page itself does (the stream of events, then all that there is), says ``open``,
and reads until its standard input ends; then it says how many messages the least of them got.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
import urllib.request

ASK = b"GET /events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"


def main() -> None:
    """Open, read, count."""
    port, pages = int(sys.argv[1]), int(sys.argv[2])
    got = [0] * pages

    def read(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(ASK)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/state.json") as whole:
                whole.read()
            for line in connection.makefile("rb"):
                got[number] += line.startswith(b"data: ")

    for number in range(pages):
        threading.Thread(target=read, args=(number,), daemon=True).start()
    while min(got) == 0:
        time.sleep(0.01)
    print("open", flush=True)
    sys.stdin.read()
    print(min(got), flush=True)


if __name__ == "__main__":
    main()
