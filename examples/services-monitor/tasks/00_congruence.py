#!/usr/bin/env python3
"""Whether the record of a service makes sense."""

import sys

words = sys.stdin.readline().split()
if len(words) != 4:
    print("error the record has no name, owner, type and address")
elif words[2] not in ("WFS", "WMS"):
    print(f"error {words[2]} is no type of a service")
elif not words[3].startswith(("http://", "https://")):
    print(f"error {words[3]} is no address")
else:
    print("ok the record is whole")
