"""A MariaDB with a directory and a socket of its own."""

import contextlib
import os
import socket
import subprocess
import time

PATIENCE_SECONDS = 60


@contextlib.contextmanager
def running(directory):
    """Its socket is db.sock there."""
    user = "--user=root" if os.geteuid() == 0 else "--skip-name-resolve"
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", user,
         f"--datadir={directory}/data"],
        check=True, capture_output=True,
    )  # fmt: skip
    address = f"{directory}/db.sock"
    server = subprocess.Popen(
        ["mariadbd", "--no-defaults", "--skip-networking", "--skip-grant-tables", user, f"--datadir={directory}/data",
         f"--socket={address}", f"--pid-file={directory}/pid"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait(address)
        yield
    finally:
        server.kill()
        server.wait()


def _wait(address):
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(address)
            return
        if time.monotonic() > end:
            raise RuntimeError(f"no MariaDB at {address}")
        time.sleep(0.05)
