"""Finds free ports. As a program, prints one."""

import contextlib
import random
import socket


def free_port():
    """A port that stays free until its program has started: systems give those from 32,768 on to whoever asks for any."""
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            # At all addresses: nobody has it at any of them.
            free.bind(("", port := random.randrange(10_000, 30_000)))
            return port


if __name__ == "__main__":
    print(free_port())
